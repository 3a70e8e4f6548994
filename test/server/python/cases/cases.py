"""Test cases of a client: each function registered with `case` runs once and is reported as one line of JSON on stdout."""

import asyncio
import inspect
import json
import os
import sys
import traceback

URL = os.environ["TROUPE_URL"]
MCP_URL = os.environ["TROUPE_MCP_URL"]
QUESTION = "Tell me about the sea in a few sentences."
TOOL_QUESTION = "How is the weather in Rome?"

# The default model is small. Enums keep its arguments short and make its output checkable. No other fields may follow: it could add them
# until max_tokens ends the output.
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Rome", "Paris"]},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
SEA = {
    "type": "object",
    "properties": {
        "sea": {"type": "string", "enum": ["calm", "rough"]},
        "depth": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["sea", "depth"],
    "additionalProperties": False,
}

_cases = []

# stdout contains only the reports. Everything else that a client prints goes to stderr.
_reports = os.fdopen(os.dup(1), "w", buffering=1)
sys.stdout = sys.stderr


def case(name):
    def register(function):
        _cases.append((name, function))
        return function

    return register


def run():
    for name, function in _cases:
        error = None
        try:
            result = function()
            if inspect.isawaitable(result):
                asyncio.run(_awaited(result))
        except BaseException:
            error = traceback.format_exc()
        _reports.write(json.dumps({"name": name, "error": error}) + "\n")


async def _awaited(result):
    return await result


def check_weather(arguments):
    assert set(arguments) == {"city", "unit"}, arguments
    assert arguments["city"] in ("Rome", "Paris"), arguments
    assert arguments["unit"] in ("celsius", "fahrenheit"), arguments


def check_sea(value):
    assert set(value) == {"sea", "depth"}, value
    assert value["sea"] in ("calm", "rough"), value
    assert isinstance(value["depth"], int) and 1 <= value["depth"] <= 9, value


def raises(kind, function):
    """Runs the function and returns the error of the given class that it raises."""
    try:
        function()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, nothing was raised")
