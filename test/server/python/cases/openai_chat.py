"""The openai SDK: chat completions, completions, embeddings, models, errors."""

import json

import openai
from pydantic import BaseModel

from cases import QUESTION, SEA, TOOL_QUESTION, URL, WEATHER, case, check_sea, check_weather, raises, run

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
tools = [
    {"type": "function", "function": {"name": "get_weather", "description": "Tells the weather.", "parameters": WEATHER}}
]
named = {"type": "function", "function": {"name": "get_weather"}}


def ask(content=QUESTION, **fields):
    fields = {"model": "default", "max_completion_tokens": 24, "seed": 7, **fields}
    return client.chat.completions.create(messages=[{"role": "user", "content": content}], **fields)


@case("answers")
def answers():
    answer = ask()
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert 0 < answer.usage.completion_tokens <= 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@case("streams the same answer, and usage at the end")
def streams():
    whole = ask(temperature=0).choices[0].message.content
    chunks = list(ask(temperature=0, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole
    assert chunks[-1].usage.completion_tokens > 0


@case("takes the sampling fields, and gives logprobs and several choices")
def sampling():
    answer = ask(n=2, temperature=0.7, top_p=0.9, presence_penalty=0.1, frequency_penalty=0.1, stop=["\n\n\n"],
                 logit_bias={"5": -1}, logprobs=True, top_logprobs=2, user="me", parallel_tool_calls=False,
                 extra_body={"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1})
    assert len(answer.choices) == 2
    for choice in answer.choices:
        assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)


@case("calls the named tool once and takes its result back")
def named_tool():
    first = ask(TOOL_QUESTION, tools=tools, tool_choice=named, max_completion_tokens=64).choices[0]
    assert first.finish_reason in ("stop", "tool_calls")
    assert [call.function.name for call in first.message.tool_calls] == ["get_weather"]
    call = first.message.tool_calls[0]
    check_weather(json.loads(call.function.arguments))
    history = [
        {"role": "user", "content": TOOL_QUESTION},
        first.message,
        {"role": "tool", "tool_call_id": call.id, "content": "sunny, 22 degrees"},
    ]
    second = client.chat.completions.create(
        model="default", messages=history, tools=tools, tool_choice="none", max_completion_tokens=16)
    assert second.choices[0].message.content and not second.choices[0].message.tool_calls


@case("calls a tool when one is required, the same streamed")
def required_tool():
    fields = {"tools": tools, "tool_choice": "required", "max_completion_tokens": 96, "temperature": 0}
    calls = ask(TOOL_QUESTION, **fields).choices[0].message.tool_calls
    assert calls
    for call in calls:
        check_weather(json.loads(call.function.arguments))
    streamed = {}
    for chunk in ask(TOOL_QUESTION, stream=True, **fields):
        for choice in chunk.choices:
            for part in choice.delta.tool_calls or ():
                streamed[part.index] = streamed.get(part.index, "") + (part.function.arguments or "")
    assert list(streamed.values()) == [call.function.arguments for call in calls]


class Sea(BaseModel):
    sea: str
    depth: int


@case("gives structured output: JSON schema, JSON object, a parsed class")
def structured():
    schema = {"type": "json_schema", "json_schema": {"name": "sea", "schema": SEA, "strict": True}}
    check_sea(json.loads(ask(response_format=schema, max_completion_tokens=64).choices[0].message.content))
    parsed = client.chat.completions.parse(
        model="default", messages=[{"role": "user", "content": "How is the sea? Answer in one word."}],
        response_format=Sea, max_completion_tokens=400, temperature=0)
    message = parsed.choices[0].message
    assert isinstance(message.parsed, Sea) or parsed.choices[0].finish_reason == "length", message


@case("streams through the SDK's stream helper")
def stream_helper():
    schema = {"type": "json_schema", "json_schema": {"name": "sea", "schema": SEA, "strict": True}}
    with client.chat.completions.stream(
        model="default", messages=[{"role": "user", "content": QUESTION}], response_format=schema,
        max_completion_tokens=64,
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"content.delta", "content.done"} <= kinds, kinds
    check_sea(json.loads(final.choices[0].message.content))


@case("answers an AsyncOpenAI client")
async def asynchronous():
    async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as other:
        stream = await other.chat.completions.create(
            model="default", messages=[{"role": "user", "content": QUESTION}], stream=True, max_tokens=12)
        assert "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])


@case("completes a text")
def completions():
    answer = client.completions.create(model="default", prompt="The sea is", max_tokens=8, echo=True)
    assert answer.choices[0].text.startswith("The sea is")


@case("embeds texts, in the SDK's own base64 too")
def embeddings():
    vectors = client.embeddings.create(model="default", input=["a", "b"]).data
    assert len(vectors) == 2 and len(vectors[0].embedding) > 100
    floats = client.embeddings.create(model="default", input="a", encoding_format="float").data[0].embedding
    assert max(abs(a - b) for a, b in zip(floats, vectors[0].embedding)) < 1e-3


@case("lists models")
def models():
    listed = client.models.list().data
    assert listed[0].id == "default"
    assert client.models.retrieve(listed[0].id).id == listed[0].id


@case("raises the SDK's errors")
def errors():
    assert raises(openai.BadRequestError, lambda: ask(temperature=9)).status_code == 400
    raises(openai.BadRequestError, lambda: ask(tools=tools, tool_choice={"type": "function", "function": {"name": "no"}}))
    unknown = raises(openai.NotFoundError, lambda: ask(model="no-such-model"))
    assert unknown.code == "model_not_found"
    too_long = raises(openai.BadRequestError, lambda: ask("word " * 3000))
    assert too_long.code == "context_length_exceeded", too_long.code


run()
