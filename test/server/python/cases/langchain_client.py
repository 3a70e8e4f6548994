"""LangChain's OpenAI models, over chat completions and responses."""

import openai
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel
from typing import Literal

from cases import QUESTION, SEA, TOOL_QUESTION, URL, case, check_sea, check_weather, raises, run

server = {"model": "default", "base_url": f"{URL}/v1", "api_key": "none", "max_retries": 0}


class Sea(BaseModel, extra="forbid"):
    """State of the sea."""

    sea: Literal["calm", "rough"]
    depth: Literal[1, 2, 3]


@tool
def get_weather(city: Literal["Rome", "Paris"], unit: Literal["celsius", "fahrenheit"]) -> str:
    """Tells the weather of a city."""
    return f"sunny in {city}"


def both(name):
    """Registers a case for each protocol."""

    def register(function):
        for protocol in ("chat completions", "responses"):
            chat = lambda tokens=64, protocol=protocol, **fields: ChatOpenAI(
                max_tokens=tokens, use_responses_api=protocol == "responses", **{"temperature": 0, **server, **fields})
            case(f"{name} ({protocol})")(lambda chat=chat: function(chat))
        return function

    return register


@both("answers")
def answers(chat):
    answer = chat(24).invoke(QUESTION)
    assert answer.text and answer.usage_metadata["output_tokens"] > 0


@both("streams the same answer")
def streams(chat):
    whole = chat(24).invoke(QUESTION).text
    assert "".join(chunk.text for chunk in chat(24).stream(QUESTION)) == whole


@both("bind_tools with a named tool calls it once")
def named_tool(chat):
    answer = chat().bind_tools([get_weather], tool_choice="get_weather").invoke(TOOL_QUESTION)
    assert [call["name"] for call in answer.tool_calls] == ["get_weather"], answer
    check_weather(answer.tool_calls[0]["args"])
    back = chat(16).bind_tools([get_weather]).invoke(
        [HumanMessage(TOOL_QUESTION), answer, ToolMessage("sunny", tool_call_id=answer.tool_calls[0]["id"])])
    assert isinstance(back, AIMessage)


@both("bind_tools with any tool required calls one")
def required_tool(chat):
    calls = chat(96).bind_tools([get_weather], tool_choice="any").invoke(TOOL_QUESTION).tool_calls
    assert calls
    for call in calls:
        check_weather(call["args"])


@both("with_structured_output gives a class")
def structured(chat):
    for method in ("json_schema", "function_calling"):
        value = chat(96).with_structured_output(Sea, method=method).invoke(QUESTION)
        assert isinstance(value, Sea), value


@both("with_structured_output gives a dictionary of a schema")
def structured_schema(chat):
    schema = {"title": "sea", "description": "State of the sea.", **SEA}
    check_sea(chat(96).with_structured_output(schema, strict=True).invoke(QUESTION))


@both("raises the SDK's errors")
def errors(chat):
    raises(openai.BadRequestError, lambda: chat(16, temperature=9).invoke(QUESTION))
    raises(openai.NotFoundError, lambda: chat(16, model="no-such-model").invoke(QUESTION))


@case("completes a text and embeds")
def others():
    assert OpenAI(max_tokens=8, **server).invoke("The sea is")
    vectors = OpenAIEmbeddings(check_embedding_ctx_length=False, **server).embed_documents(["a", "b"])
    assert len(vectors) == 2 and len(vectors[0]) > 100


run()
