"""Agent runs and files through the openai and anthropic SDKs."""

import anthropic
import openai

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
    files = client.containers.files.list(call.container_id).data
    assert all(file.container_id == call.container_id for file in files), files
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
        messages=[{"role": "user", "content": QUESTION}],
        extra_body={"temperature": 0},
        tools=[{"type": "code_execution_20250825", "name": "code_execution"}],
        tool_choice={"type": "tool", "name": "code_execution"},
    ) as stream:
        message = stream.get_final_message()
    assert message.content[0].type == "server_tool_use", message.content
    assert message.content[1].type.endswith("code_execution_tool_result"), message.content


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
