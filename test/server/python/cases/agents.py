"""Agent runs and files through the openai and anthropic SDKs, and the previews of documents made by the usual libraries."""

import io

import anthropic
import docx
import fpdf
import openai
import openpyxl
import pptx

from cases import URL, case, raises, run

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
messages_client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
QUESTION = "What is 17 * 23? Use Python."


@case("chat: a forced call runs Python, and the model answers")
def chat():
    fields = {
        "model": "default",
        "temperature": 0,
        "max_tokens": 150,
        "messages": [{"role": "user", "content": QUESTION}],
        "extra_body": {"tools": [{"type": "code_interpreter"}], "tool_choice": {"type": "code_interpreter"}},
    }
    answer = client.chat.completions.create(**fields)
    call = answer.agentic_tool_calls[0]
    assert call["name"] == "service_execute_python" and "391" in call["result_content"], call
    assert answer.choices[0].message.content
    phases = [chunk.phase for chunk in client.chat.completions.create(stream=True, **fields) if hasattr(chunk, "phase")]
    assert phases[:2] == ["calling", "complete"], phases


@case("responses: a call of the code interpreter, its container, and the next response")
def responses():
    first = client.responses.create(
        model="default",
        temperature=0,
        max_output_tokens=150,
        input=QUESTION,
        tools=[{"type": "code_interpreter", "container": {"type": "auto"}}],
        tool_choice={"type": "code_interpreter"},
    )
    call = next(item for item in first.output if item.type == "code_interpreter_call")
    assert call.code and call.status == "completed" and first.output_text
    assert client.containers.files.list(call.container_id).data == []
    second = client.responses.create(model="default", input="Thank you.", previous_response_id=first.id, max_output_tokens=24)
    assert second.output_text


@case("responses: a shell call and its output")
def shell():
    answer = client.responses.create(
        model="default",
        temperature=0,
        max_output_tokens=150,
        input="List the files.",
        tools=[{"type": "shell"}],
        tool_choice={"type": "shell"},
    )
    kinds = [item.type for item in answer.output]
    assert kinds[:2] == ["shell_call", "shell_call_output"], kinds
    assert answer.output[0].action.commands


@case("messages: blocks of the code execution tool, streamed")
def messages():
    with messages_client.messages.stream(
        model="default",
        max_tokens=150,
        temperature=0,
        messages=[{"role": "user", "content": QUESTION}],
        tools=[{"type": "code_execution_20250825", "name": "code_execution"}],
        tool_choice={"type": "tool", "name": "code_execution"},
    ) as stream:
        message = stream.get_final_message()
    assert message.content[0].type == "server_tool_use", message.content
    assert message.content[1].type.endswith("code_execution_tool_result"), message.content


def docx_file():
    document = docx.Document()
    document.add_heading("Wages", 1)
    document.add_paragraph("Ann & Bob earn the same.")
    table = document.add_table(1, 2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "left", "right"
    return saved(document.save), ["Wages", "Ann & Bob earn the same.", "left", "right"]


def xlsx_file():
    workbook = openpyxl.Workbook()
    workbook.active.append(["Name", "Wage", 3.5])
    workbook.active.append(["Ann <A>", 1200])
    workbook.create_sheet("two").append(["second sheet"])
    return saved(workbook.save), ["Name\tWage\t3.5", "Ann <A>\t1200", "second sheet"]


def pptx_file():
    slides = pptx.Presentation()
    for title in ("First title", "Second title"):
        slides.slides.add_slide(slides.slide_layouts[5]).shapes.title.text = title
    return saved(slides.save), ["First title", "Second title"]


def pdf_file():
    pdf = fpdf.FPDF()
    for text in ("Page one says hello.", "Page two says bye."):
        pdf.add_page()
        pdf.set_font("Helvetica", size=12)
        pdf.cell(text=text)
    return bytes(pdf.output()), ["Page one says hello.", "Page two says bye."]


def saved(save):
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


@case("files: the preview of a document is its text")
def previews():
    for name, make in {"a.docx": docx_file, "a.xlsx": xlsx_file, "a.pptx": pptx_file, "a.pdf": pdf_file}.items():
        content, texts = make()
        file = client.files.create(file=(name, content), purpose="user_data")
        preview = client.files.retrieve(file.id).preview
        places = [preview.find(text) for text in texts]
        assert -1 not in places and places == sorted(places), (name, preview)
        assert client.files.content(file.id).read() == content


@case("files: uploaded by one SDK, read by both, deleted once")
def files():
    file = client.files.create(file=("numbers.csv", b"a,b\n1,2\n"), purpose="user_data")
    part = {"type": "file", "file": {"file_id": file.id}}
    content = [{"type": "text", "text": "Repeat the file."}, part]
    answer = client.chat.completions.create(model="default", messages=[{"role": "user", "content": content}], max_tokens=16)
    assert answer.choices[0].message.content
    found = messages_client.beta.files.retrieve_metadata(file.id)
    assert found.filename == "numbers.csv" and found.size_bytes == 8
    assert client.files.delete(file.id).deleted
    raises(openai.NotFoundError, lambda: client.files.retrieve(file.id))


run()
