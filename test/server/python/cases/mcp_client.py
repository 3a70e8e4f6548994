"""The mcp SDK's client over streamable HTTP, with the handshakes of the old and new protocol versions."""

from mcp import Client, ClientSession
from mcp.client.streamable_http import streamable_http_client

from cases import MCP_URL, QUESTION, case, run


@case("connects, lists and calls")
async def client():
    async with Client(MCP_URL) as connected:
        tools = (await connected.list_tools()).tools
        assert "chat" in [tool.name for tool in tools], tools
        result = await connected.call_tool(
            "chat", {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 12})
        assert not result.is_error and result.content[0].text


@case("initialises a session, lists and calls")
async def session():
    async with streamable_http_client(MCP_URL) as streams:
        async with ClientSession(streams[0], streams[1]) as opened:
            greeting = await opened.initialize()
            assert greeting.server_info.name
            tools = (await opened.list_tools()).tools
            chat = next(tool for tool in tools if tool.name == "chat")
            assert chat.input_schema["properties"]["max_tokens"]["type"] == "integer"
            await opened.send_ping()
            result = await opened.call_tool(
                "chat", {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 12})
            assert result.content[0].text


@case("reports a refused call as an error")
async def refused():
    async with Client(MCP_URL) as connected:
        try:
            result = await connected.call_tool("chat", {"messages": "wrong", "max_tokens": -1})
        except Exception:
            return
        assert result.is_error


run()
