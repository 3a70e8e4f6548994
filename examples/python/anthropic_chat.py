"""Streaming chat with the anthropic package: `pip install anthropic`, then
`python examples/python/anthropic_chat.py "Your question"`.

TROUPE_URL is the address of the server (without /v1), TROUPE_KEY its API key if it has one.
"""

import os
import sys

from anthropic import Anthropic

client = Anthropic(
    base_url=os.environ.get("TROUPE_URL", "http://localhost:1234"), api_key=os.environ.get("TROUPE_KEY", "none")
)

with client.messages.stream(
    model="default",
    max_tokens=200,
    messages=[{"role": "user", "content": sys.argv[1] if len(sys.argv) > 1 else "Write a haiku about the sea."}],
) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
print()
