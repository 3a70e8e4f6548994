"""Serves a GGUF file with mistral.rs for `bench mistralrs`.

mistral.rs comes as a Python package, whose engine and scheduler are its own compiled code. The package has no HTTP server, so
this program passes each streamed chat request on and writes each chunk of the answer as it comes.

Arguments: FILE.gguf PORT MAX_SEQUENCES
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from threading import Lock

from mistralrs import ChatCompletionRequest, Runner, Which

path, port, max_sequences = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
runner = Runner(
    which=Which.GGUF(quantized_model_id=os.path.dirname(path), quantized_filename=os.path.basename(path)),
    max_seqs=max_sequences,
    prefix_cache_n=0,  # no prompt of the benchmark comes twice
    token_source="none",
)
# Held until the first token of an answer: the runner refuses a second request while it takes one, and version 0.9.5 fails at a
# prefill of two prompts of equal length on the CPU ("input tensor is not contiguous"). Decode steps are batched.
prefill = Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.answer(json.dumps({"data": [{"id": "default"}]}))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_stream = asked.get("stream", False)
        request = ChatCompletionRequest(
            messages=asked["messages"],
            model="default",
            max_tokens=asked["max_tokens"],
            temperature=asked.get("temperature", 0),
            ignore_eos=asked.get("ignore_eos", False),
            stream=is_stream,
        )
        with prefill:
            response = runner.send_chat_completion_request(request)
            first = next(response) if is_stream else None
        if is_stream:
            self.stream(chain([first], response))
        else:
            self.answer(json.dumps({"usage": usage_of(response.usage)}))

    def stream(self, chunks):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            choice = chunk.choices[0]
            event = {"choices": [{"delta": {"content": choice.delta.content}, "finish_reason": choice.finish_reason}]}
            self.event(json.dumps(event))
            if chunk.usage is not None:
                self.event(json.dumps({"choices": [], "usage": usage_of(chunk.usage)}))
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, data):
        text = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))

    def answer(self, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def usage_of(usage):
    return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


print("ready", flush=True)
Server(("127.0.0.1", port), Handler).serve_forever()
