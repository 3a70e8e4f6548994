"""The openai SDK: responses."""

import json
import time

import openai
from pydantic import BaseModel

from cases import QUESTION, SEA, TOOL_QUESTION, URL, WEATHER, case, check_sea, check_weather, raises, run

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
tools = [{"type": "function", "name": "get_weather", "description": "Tells the weather.", "parameters": WEATHER, "strict": True}]


def create(input=QUESTION, **fields):
    return client.responses.create(**{"model": "default", "input": input, "max_output_tokens": 24, **fields})


@case("answers")
def answers():
    answer = create(instructions="Be brief.", temperature=0.5, metadata={"a": "b"}, truncation="disabled")
    assert answer.output_text and answer.status in ("completed", "incomplete")
    assert answer.usage.output_tokens > 0 and answer.metadata == {"a": "b"}


@case("streams the same answer")
def streams():
    whole = create(temperature=0)
    events = list(create(temperature=0, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type in ("response.completed", "response.incomplete")
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert events[-1].response.output_text == whole.output_text


@case("stores, continues and deletes a response")
def stored():
    first = create("My name is Ann.")
    assert client.responses.retrieve(first.id).output_text == first.output_text
    second = create("What is my name?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.input_tokens
    items = client.responses.input_items.list(second.id).data
    assert any("What is my name?" in str(item) for item in items)
    client.responses.delete(first.id)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(first.id))
    missing = raises(openai.APIStatusError, lambda: create(previous_response_id=first.id))
    assert missing.code == "previous_response_not_found", missing.code


@case("runs in the background until it ends or is cancelled")
def background():
    started = create(background=True, max_output_tokens=16)
    assert started.status in ("queued", "in_progress")
    limit = time.monotonic() + 30
    while (now := client.responses.retrieve(started.id)).status in ("queued", "in_progress"):
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert now.output_text and now.status in ("completed", "incomplete")
    long = create("Count to a thousand.", background=True, max_output_tokens=900, extra_body={"ignore_eos": True})
    assert client.responses.cancel(long.id).status == "cancelled"
    assert client.responses.retrieve(long.id).status == "cancelled"


@case("calls the named tool once and takes its result back")
def named_tool():
    choice = {"type": "function", "name": "get_weather"}
    first = create(TOOL_QUESTION, tools=tools, tool_choice=choice, max_output_tokens=64)
    calls = [item for item in first.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["get_weather"], first.output
    check_weather(json.loads(calls[0].arguments))
    result = {"type": "function_call_output", "call_id": calls[0].call_id, "output": "sunny"}
    chained = create([result], previous_response_id=first.id, tools=tools, tool_choice="none")
    assert chained.output_text
    whole = create([{"role": "user", "content": TOOL_QUESTION}, *first.output, result], tools=tools, tool_choice="none")
    assert whole.output_text


@case("calls a tool when one is required, streamed")
def required_tool():
    events = list(create(TOOL_QUESTION, tools=tools, tool_choice="required", stream=True, max_output_tokens=96))
    finished = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert finished
    # The token limit may have cut off the last call.
    whole = finished[:-1] if events[-1].type == "response.incomplete" else finished
    for event in whole:
        check_weather(json.loads(event.arguments))


class Sea(BaseModel):
    sea: str
    depth: int


@case("gives structured output, and as a parsed class")
def structured():
    text = {"format": {"type": "json_schema", "name": "sea", "schema": SEA, "strict": True, "description": "the sea"}}
    answer = create(text=text, max_output_tokens=64)
    check_sea(json.loads(answer.output_text))
    assert answer.text.format.name == "sea" and answer.text.format.description == "the sea"
    parsed = client.responses.parse(model="default", input="How is the sea? One word.", text_format=Sea, max_output_tokens=400, temperature=0)
    assert isinstance(parsed.output_parsed, Sea) or parsed.status == "incomplete"


@case("streams through the SDK's stream helper")
def stream_helper():
    # The output is JSON so that it ends before the token limit, because the helper requires a completed response.
    text = {"format": {"type": "json_schema", "name": "sea", "schema": SEA, "strict": True}}
    with client.responses.stream(model="default", input=QUESTION, text=text, max_output_tokens=64) as stream:
        for _ in stream:
            pass
        check_sea(json.loads(stream.get_final_response().output_text))


@case("raises the SDK's errors")
def errors():
    raises(openai.BadRequestError, lambda: create(temperature=9))
    raises(openai.BadRequestError, lambda: create("word " * 3000))
    raises(openai.NotFoundError, lambda: create(model="no-such-model"))
    raises(openai.NotFoundError, lambda: client.responses.retrieve("resp_none"))


run()
