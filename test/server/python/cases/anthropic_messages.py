"""The anthropic SDK: messages."""

import anthropic
from anthropic import beta_tool

from cases import QUESTION, SEA, TOOL_QUESTION, URL, WEATHER, case, check_weather, raises, run

client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
tools = [{"name": "get_weather", "description": "Tells the weather.", "input_schema": WEATHER}]


def create(content=QUESTION, **fields):
    fields = {"model": "default", "max_tokens": 24, **fields}
    return client.messages.create(messages=[{"role": "user", "content": content}], **fields)


@case("answers")
def answers():
    answer = create(system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                    extra_body={"temperature": 0.5, "top_k": 20, "top_p": 0.9}, stop_sequences=["\n\n\n"], metadata={"user_id": "me"})
    assert answer.content[0].text
    assert answer.stop_reason in ("end_turn", "max_tokens", "stop_sequence")
    assert 0 < answer.usage.output_tokens <= 24


@case("streams the same answer")
def streams():
    whole = create(extra_body={"temperature": 0})
    with client.messages.stream(
        model="default", max_tokens=24, extra_body={"temperature": 0}, messages=[{"role": "user", "content": QUESTION}]
    ) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.usage.output_tokens == whole.usage.output_tokens
    kinds = [event.type for event in create(stream=True)]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"


@case("continues an assistant message")
def prefill():
    history = [{"role": "user", "content": "Name a colour."}, {"role": "assistant", "content": "The colour is"}]
    answer = client.messages.create(model="default", max_tokens=12, messages=history)
    assert answer.content[0].text


@case("calls the named tool once and takes its result back")
def named_tool():
    first = create(TOOL_QUESTION, tools=tools, tool_choice={"type": "tool", "name": "get_weather"}, max_tokens=64)
    calls = [block for block in first.content if block.type == "tool_use"]
    assert [call.name for call in calls] == ["get_weather"] and first.stop_reason == "tool_use"
    check_weather(calls[0].input)
    result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": [{"type": "text", "text": "sunny"}]}
    history = [
        {"role": "user", "content": TOOL_QUESTION},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(
        model="default", max_tokens=16, messages=history, tools=tools, tool_choice={"type": "none"})
    assert second.content[0].type == "text"


@case("calls a tool when any is required, streamed")
def any_tool():
    with client.messages.stream(
        model="default", max_tokens=96, tools=tools, tool_choice={"type": "any"},
        messages=[{"role": "user", "content": TOOL_QUESTION}],
    ) as stream:
        final = stream.get_final_message()
    calls = [block for block in final.content if block.type == "tool_use"]
    assert calls
    # The token limit may have cut off the last call.
    for call in calls[:-1] if final.stop_reason == "max_tokens" else calls:
        check_weather(call.input)


@case("counts tokens as usage does")
def counts():
    counted = client.messages.count_tokens(model="default", messages=[{"role": "user", "content": QUESTION}])
    usage = create().usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    with_tools = client.messages.count_tokens(
        model="default", tools=tools, system="Be brief.", messages=[{"role": "user", "content": QUESTION}])
    assert with_tools.input_tokens > counted.input_tokens


@case("takes thinking")
def thinking():
    answer = create(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=1025, stop_sequences=["."])
    assert answer.stop_reason in ("end_turn", "max_tokens", "stop_sequence")
    assert create(thinking={"type": "disabled"}).content[0].text


@case("gives structured output")
def structured():
    answer = client.messages.create(
        model="default", max_tokens=64, messages=[{"role": "user", "content": QUESTION}],
        output_config={"format": {"type": "json_schema", "schema": SEA}})
    assert '"depth"' in answer.content[0].text


@beta_tool
def get_weather(city: str) -> str:
    """Tells the weather of a city."""
    return f"sunny in {city}"


@case("runs the SDK's tool runner")
def tool_runner():
    runner = client.beta.messages.tool_runner(
        model="default", max_tokens=48, tools=[get_weather], max_iterations=2,
        messages=[{"role": "user", "content": TOOL_QUESTION}])
    final = runner.until_done()
    assert final.type == "message" and final.usage.output_tokens > 0


@case("lists models")
def models():
    listed = client.models.list(limit=10)
    assert listed.data and listed.data[0].type == "model" and listed.data[0].display_name
    assert client.models.retrieve(listed.data[0].id).id == listed.data[0].id


@case("answers an AsyncAnthropic client")
async def asynchronous():
    async with anthropic.AsyncAnthropic(base_url=URL, api_key="none", max_retries=0) as other:
        async with other.messages.stream(
            model="default", max_tokens=12, messages=[{"role": "user", "content": QUESTION}]
        ) as stream:
            assert "".join([text async for text in stream.text_stream])


@case("raises the SDK's errors")
def errors():
    raises(anthropic.BadRequestError, lambda: create(extra_body={"temperature": 9}))
    raises(anthropic.NotFoundError, lambda: create(model="no-such-model"))
    too_long = raises(anthropic.BadRequestError, lambda: create("word " * 3000))
    assert "prompt is too long" in str(too_long), too_long


run()
