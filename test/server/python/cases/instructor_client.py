"""instructor, in its default mode and in other modes, with the openai and anthropic SDKs."""

from typing import Literal

import anthropic
import instructor
import openai
from pydantic import BaseModel

from cases import QUESTION, URL, case, run


class Sea(BaseModel, extra="forbid"):
    """State of the sea."""

    sea: Literal["calm", "rough"]
    depth: Literal[1, 2, 3]


ask = {"model": "default", "max_tokens": 400, "max_retries": 0, "messages": [{"role": "user", "content": QUESTION}]}


def sdk():
    return openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)


@case("default mode")
def default_mode():
    assert isinstance(instructor.from_openai(sdk()).chat.completions.create(response_model=Sea, **ask), Sea)


@case("from_provider")
def from_provider():
    client = instructor.from_provider("openai/default", base_url=f"{URL}/v1", api_key="none")
    fields = {key: value for key, value in ask.items() if key != "model"}
    assert isinstance(client.create(response_model=Sea, **fields), Sea)


@case("JSON schema mode")
def json_schema_mode():
    client = instructor.from_openai(sdk(), mode=instructor.Mode.JSON_SCHEMA)
    assert isinstance(client.create(response_model=Sea, **ask), Sea)


@case("partial objects, streamed")
def partial():
    client = instructor.from_openai(sdk())
    values = list(client.create_partial(response_model=Sea, **ask))
    assert values and values[-1].sea in ("calm", "rough"), values


@case("anthropic tools")
def anthropic_tools():
    client = instructor.from_anthropic(anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0))
    assert isinstance(client.create(response_model=Sea, **ask), Sea)


run()
