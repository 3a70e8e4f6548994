"""Streaming chat with the openai package: `pip install openai`, then
`python examples/python/openai_chat.py "Your question"`.

TROUPE_URL is the address of the server, TROUPE_KEY its API key if it has one.
"""

import os
import sys

from openai import OpenAI

url = os.environ.get("TROUPE_URL", "http://localhost:1234")
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("TROUPE_KEY", "none"))

stream = client.chat.completions.create(
    model="default",
    messages=[{"role": "user", "content": sys.argv[1] if len(sys.argv) > 1 else "Write a haiku about the sea."}],
    max_tokens=200,
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
