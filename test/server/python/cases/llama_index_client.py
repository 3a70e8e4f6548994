"""llama-index with OpenAILike."""

from typing import Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

from cases import QUESTION, TOOL_QUESTION, URL, case, check_weather, run


class Sea(BaseModel, extra="forbid"):
    """State of the sea."""

    sea: Literal["calm", "rough"]
    depth: Literal[1, 2, 3]


def get_weather(city: Literal["Rome", "Paris"], unit: Literal["celsius", "fahrenheit"]) -> str:
    """Tells the weather of a city."""
    return f"sunny in {city}"


tool = FunctionTool.from_defaults(get_weather)


def llm(tokens=24, **fields):
    return OpenAILike(model="default", api_base=f"{URL}/v1", api_key="none", is_chat_model=True, max_tokens=tokens,
                      is_function_calling_model=True, context_window=1024, temperature=0, max_retries=0, **fields)


@case("answers and streams the same")
def answers():
    history = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content=QUESTION)]
    whole = llm().chat(history).message.content
    assert whole
    assert "".join(part.delta or "" for part in llm().stream_chat(history)) == whole


@case("completes")
def completes():
    assert llm().complete(QUESTION).text
    plain = OpenAILike(model="default", api_base=f"{URL}/v1", api_key="none", is_chat_model=False, max_tokens=8)
    assert plain.complete("The sea is").text


@case("chat_with_tools with a required tool calls it")
def required_tool():
    model = llm(96)
    response = model.chat_with_tools([tool], user_msg=TOOL_QUESTION, tool_required=True, allow_parallel_tool_calls=False)
    calls = model.get_tool_calls_from_response(response)
    assert calls
    check_weather(calls[0].tool_kwargs)


@case("predict_and_call runs the tool")
def predict_and_call():
    answer = llm(96).predict_and_call([tool], user_msg=TOOL_QUESTION, tool_required=True)
    assert "sunny in" in str(answer), answer


@case("structured output through a tool and through a schema")
def structured():
    message = [ChatMessage(role="user", content=QUESTION)]
    assert isinstance(llm(96).as_structured_llm(Sea).chat(message).raw, Sea)
    through_schema = llm(96, should_use_structured_outputs=True)
    assert isinstance(through_schema.as_structured_llm(Sea).chat(message).raw, Sea)


@case("answers asynchronously")
async def asynchronous():
    stream = await llm(12).astream_chat([ChatMessage(role="user", content=QUESTION)])
    assert "".join([part.delta or "" async for part in stream])


run()
