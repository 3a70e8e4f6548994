#!/usr/bin/env bash
# Eight everyday calls: `bash examples/curl.sh`. TROUPE_URL is the address of the server, TROUPE_KEY its API key if it has one.
set -euo pipefail
url=${TROUPE_URL:-http://localhost:1234}

call() { # PATH [BODY]
  printf '\n== %s\n' "$1"
  curl --silent --show-error --fail-with-body --no-buffer "$url$1" -H "authorization: Bearer ${TROUPE_KEY:-none}" \
    -H 'content-type: application/json' ${2:+--data "$2"}
  echo
}

# 1. The models that the server offers.
call /v1/models

# 2. A chat.
call /v1/chat/completions '{
  "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Name a colour." }],
  "max_tokens": 32
}'

# 3. The same as a stream of server-sent events.
call /v1/chat/completions '{
  "messages": [{ "role": "user", "content": "Name a colour." }],
  "max_tokens": 8, "stream": true, "stream_options": { "include_usage": true }
}'

# 4. JSON that matches a schema.
call /v1/chat/completions '{
  "messages": [{ "role": "user", "content": "The sea is calm today, and blue. Describe it." }],
  "max_tokens": 64,
  "response_format": { "type": "json_schema", "json_schema": { "name": "sea", "strict": true, "schema": {
    "type": "object", "required": ["state", "colour"], "additionalProperties": false,
    "properties": { "state": { "enum": ["calm", "rough"] }, "colour": { "enum": ["blue", "green", "grey"] } }
  } } }
}'

# 5. A tool call. With `"tool_choice": "auto"`, the default, the model decides whether to call a tool.
call /v1/chat/completions '{
  "messages": [{ "role": "user", "content": "How is the weather in Rome?" }],
  "max_tokens": 64, "tool_choice": { "type": "function", "function": { "name": "get_weather" } },
  "tools": [{ "type": "function", "function": { "name": "get_weather", "description": "Tells the weather of a city.",
    "parameters": { "type": "object", "required": ["city"], "additionalProperties": false,
      "properties": { "city": { "enum": ["Rome", "Paris"] } } } } }]
}'

# 6. A response, in the format of the Responses API.
call /v1/responses '{ "input": "Name a colour.", "max_output_tokens": 32, "store": false }'

# 7. A message, in the format of the Messages API.
call /v1/messages '{ "model": "default", "max_tokens": 32, "messages": [{ "role": "user", "content": "Name a colour." }] }'

# 8. Embeddings. `dimensions` is optional. `cut` shows only the first 200 characters.
call /v1/embeddings '{ "model": "default", "input": ["the sea", "a ship"] }' | cut -c 1-200
