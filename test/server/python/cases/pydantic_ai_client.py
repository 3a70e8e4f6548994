"""pydantic-ai's agents, over chat completions and responses. Its client for the messages protocol does not work with anthropic
2.14."""

from typing import Literal

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from cases import QUESTION, URL, case, run


class Sea(BaseModel, extra="forbid"):
    """State of the sea."""

    sea: Literal["calm", "rough"]
    depth: Literal[1, 2, 3]


def models(name="default"):
    """Returns a model for each protocol. Creates new clients, because each event loop needs its own."""
    openai = OpenAIProvider(openai_client=AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0))
    return {
        "chat completions": OpenAIChatModel(name, provider=openai),
        "responses": OpenAIResponsesModel(name, provider=openai),
    }


def settings(tokens):
    return {"max_tokens": tokens, "temperature": 0.0}


for protocol in models():

    @case(f"answers and streams ({protocol})")
    async def answers(protocol=protocol):
        agent = Agent(models()[protocol], instructions="Be brief.", model_settings=settings(24))
        whole = (await agent.run(QUESTION)).output
        async with agent.run_stream(QUESTION) as stream:
            assert await stream.get_output() == whole

    @case(f"gives an output type through a tool ({protocol})")
    async def tool_output(protocol=protocol):
        agent = Agent(models()[protocol], output_type=ToolOutput(Sea), model_settings=settings(96), retries=0)
        assert isinstance((await agent.run(QUESTION)).output, Sea)

    @case(f"raises the error of an unknown model ({protocol})")
    async def unknown_model(protocol=protocol):
        try:
            await Agent(models("no-such-model")[protocol]).run(QUESTION)
        except ModelHTTPError as error:
            assert error.status_code == 404
        else:
            raise AssertionError("nothing was raised")


for protocol in models():

    @case(f"gives an output type through a schema ({protocol})")
    async def native_output(protocol=protocol):
        agent = Agent(models()[protocol], output_type=NativeOutput(Sea), model_settings=settings(96), retries=0)
        assert isinstance((await agent.run(QUESTION)).output, Sea)


run()
