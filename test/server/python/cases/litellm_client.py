"""LiteLLM, over chat completions, completions, embeddings and messages."""

import json

import litellm

from cases import QUESTION, SEA, TOOL_QUESTION, URL, WEATHER, case, check_sea, check_weather, raises, run

server = {"api_base": f"{URL}/v1", "api_key": "none", "num_retries": 0}
tools = [
    {"type": "function", "function": {"name": "get_weather", "description": "Tells the weather.", "parameters": WEATHER}}
]
providers = ("openai", "hosted_vllm")


def ask(content=QUESTION, provider="openai", **fields):
    fields = {"model": f"{provider}/default", "max_tokens": 24, **server, **fields}
    return litellm.completion(messages=[{"role": "user", "content": content}], **fields)


@case("answers")
def answers():
    for provider in providers:
        answer = ask(provider=provider, temperature=0.5, top_p=0.9, seed=3, stop=["\n\n\n"], user="me")
        assert answer.choices[0].message.content and answer.usage.completion_tokens > 0


@case("streams the same answer")
def streams():
    for provider in providers:
        whole = ask(provider=provider, temperature=0).choices[0].message.content
        chunks = list(ask(provider=provider, temperature=0, stream=True, stream_options={"include_usage": True}))
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole
        assert litellm.stream_chunk_builder(chunks).usage.completion_tokens > 0


@case("calls the named tool once and takes its result back")
def named_tool():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    message = ask(TOOL_QUESTION, tools=tools, tool_choice=choice, max_tokens=64).choices[0].message
    assert [call.function.name for call in message.tool_calls] == ["get_weather"]
    check_weather(json.loads(message.tool_calls[0].function.arguments))
    history = [
        {"role": "user", "content": TOOL_QUESTION},
        message,
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "name": "get_weather", "content": "sunny"},
    ]
    second = litellm.completion(
        model="openai/default", messages=history, tools=tools, tool_choice="none", max_tokens=16, **server)
    assert second.choices[0].message.content


@case("calls a tool when one is required")
def required_tool():
    choice = ask(TOOL_QUESTION, tools=tools, tool_choice="required", max_tokens=96).choices[0]
    calls = choice.message.tool_calls
    assert calls
    # The token limit may have cut off the last call.
    for call in calls[:-1] if choice.finish_reason == "length" else calls:
        check_weather(json.loads(call.function.arguments))


@case("gives structured output")
def structured():
    schema = {"type": "json_schema", "json_schema": {"name": "sea", "schema": SEA, "strict": True}}
    for provider in providers:
        answer = ask(provider=provider, response_format=schema, max_tokens=64)
        check_sea(json.loads(answer.choices[0].message.content))


@case("speaks responses")
def responses():
    answer = litellm.responses(model="openai/default", input=QUESTION, max_output_tokens=16, **server)
    assert answer.usage.output_tokens > 0
    kinds = [event.type for event in litellm.responses(
        model="openai/default", input=QUESTION, max_output_tokens=16, stream=True, **server)]
    assert kinds[0] == "response.created", kinds


@case("speaks messages")
def messages():
    answer = litellm.completion(model="anthropic/default", messages=[{"role": "user", "content": QUESTION}],
                                max_tokens=16, api_base=URL, api_key="none", num_retries=0)
    assert answer.choices[0].message.content
    choice = {"type": "function", "function": {"name": "get_weather"}}
    call = litellm.completion(
        model="anthropic/default", messages=[{"role": "user", "content": TOOL_QUESTION}], tools=tools,
        tool_choice=choice, max_tokens=64, api_base=URL, api_key="none", num_retries=0,
    ).choices[0].message.tool_calls[0]
    check_weather(json.loads(call.function.arguments))


@case("completes a text and embeds")
def others():
    text = litellm.text_completion(model="text-completion-openai/default", prompt="The sea is", max_tokens=8, **server)
    assert text.choices[0].text
    vectors = litellm.embedding(model="openai/default", input=["a", "b"], **server).data
    assert len(vectors) == 2 and len(vectors[0]["embedding"]) > 100


@case("raises LiteLLM's errors")
def errors():
    raises(litellm.BadRequestError, lambda: ask(temperature=9))
    raises(litellm.NotFoundError, lambda: ask(model="openai/no-such-model"))
    raises(litellm.ContextWindowExceededError, lambda: ask("word " * 3000))


run()
