import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import { messagesErrors } from "../../../../http/messages/errors.ts";
import { type ErrorCode, ServerError } from "../../../../runtime/errors.ts";
import { done, FakeInference, failure, finish, text } from "../../../fixtures/fakes/fake-inference.ts";
import { request, type SocketlessOptions } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const body = { model: "tiny", max_tokens: 5, messages: [{ role: "user", content: "hi" }] };

function post(
  options: SocketlessOptions = {},
  inference = new FakeInference(),
  path = "/v1/messages",
  keepAliveMs = 0,
) {
  const app = createApp({ inference, log: recordingLog(), config: { keepAliveMs } });
  return request(app, "POST", path, { body, ...options });
}

function failing(code: ErrorCode): FakeInference {
  return new FakeInference(() => [[failure(code)]]);
}

describe("POST /v1/messages", () => {
  it("returns a message with an id for either spelling of the headers", async () => {
    for (const vendor of ["anthropic", "alt"]) {
      const headers = { [`${vendor}-version`]: "2023-06-01", [`${vendor}-beta`]: "a,b", "x-api-key": "k" };
      const reply = await post({ headers });
      assert.equal(reply.status, 200);
      const message = JSON.parse(reply.body);
      assert.match(message.id, /^msg_[0-9a-f]{24}$/);
      assert.deepEqual([message.model, message.content], ["tiny", [{ type: "text", text: "Hello world" }]]);
    }
  });

  it("has the request id also in the vendor's header on every response, unless disabled", async () => {
    const headers = { "content-type": "application/json", "x-request-id": "r-1" };
    const inference = new FakeInference();
    for (const [method, sent] of [
      ["POST", body],
      ["POST", { ...body, stream: true }],
      ["POST", { ...body, max_tokens: 0 }],
      ["GET", undefined],
    ] as const) {
      for (const disableRequestIdHeader of [false, true]) {
        const app = createApp({ inference, log: recordingLog(), config: { disableRequestIdHeader } });
        const reply = await request(app, method, "/v1/messages", { body: JSON.stringify(sent), headers });
        const id = disableRequestIdHeader ? undefined : "r-1";
        assert.deepEqual([reply.headers["x-request-id"], reply.headers["request-id"]], [id, id]);
        assert.equal(reply.headers["access-control-expose-headers"], "x-request-id, request-id, x-ignored-fields");
      }
    }
  });

  it("streams named events", async () => {
    const reply = await post({ body: { ...body, stream: true } });
    assert.equal(reply.headers["content-type"], "text/event-stream");
    assert.deepEqual(
      reply.body.match(/^event: .*/gm)?.map((line) => line.slice("event: ".length)),
      [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
      ],
    );
  });

  it("keeps an idle stream alive with comments before its start, then with pings", async () => {
    const inference = new FakeInference(() => [{ waitMs: 30 }, [text("a")], { waitMs: 30 }, [finish(), done]]);
    const { writes } = await post({ body: { ...body, stream: true } }, inference, "/v1/messages", 10);
    const [before, after] = [writes.slice(0, 1), writes.slice(-2, -1)];
    assert.deepEqual(before, [": keep-alive\n\n"]);
    assert.deepEqual(after, ['event: ping\ndata: {"type":"ping"}\n\n']);
  });

  it("maps each kind of failure to its status and type", async () => {
    const told = async (reply: ReturnType<typeof post>) => {
      const { status, headers, body: text } = await reply;
      const { type, error } = JSON.parse(text);
      assert.equal(type, "error");
      return [status, error.type, error.details.error_code, headers["retry-after"]];
    };
    assert.deepEqual(await told(post({ body: "{", headers: { "content-type": "application/json" } })), [
      400,
      "invalid_request_error",
      "invalid_json",
      undefined,
    ]);
    assert.deepEqual(await told(post({ body: "hi" })), [
      415,
      "invalid_request_error",
      "invalid_content_type",
      undefined,
    ]);
    assert.deepEqual(await told(post({ body: { ...body, model: "gpt" } })), [
      404,
      "not_found_error",
      "model_not_found",
      undefined,
    ]);
    for (const stream of [false, true]) {
      const failed = (code: ErrorCode) => told(post({ body: { ...body, stream } }, failing(code)));
      assert.deepEqual(await failed("context_length_exceeded"), [
        400,
        "invalid_request_error",
        "context_length_exceeded",
        undefined,
      ]);
      assert.deepEqual(await failed("queue_full"), [429, "rate_limit_error", "queue_full", "1"]);
      assert.deepEqual(await failed("model_loading"), [503, "overloaded_error", "model_loading", "2"]);
      assert.deepEqual(await failed("model_failed"), [503, "overloaded_error", "model_failed", "1"]);
    }
  });

  it("names a prompt that is too long in the words that clients parse", () => {
    const words = (prompt: number, output: number | null) => {
      const lengths = { limit: 512, prompt, output };
      const error = { code: "context_length_exceeded", message: "too long", param: "messages", lengths } as const;
      return JSON.parse(messagesErrors.body(error, "req-1")).error.message as string;
    };
    assert.equal(words(600, 100), "prompt is too long: 600 tokens > 512 maximum");
    assert.equal(words(512, null), "prompt is too long: 512 tokens > 511 maximum");
    const both = "input length and `max_tokens` exceed context limit: 400 + 200 > 512";
    assert.equal(words(400, 200), `${both}, decrease input length or \`max_tokens\` and try again`);
  });

  it("reports the thinking budget under the protocol's name", () => {
    const error = { code: "unsupported", message: "leave reasoning_budget out", param: "reasoning_budget" } as const;
    assert.deepEqual(JSON.parse(messagesErrors.body(error, "req-1")), {
      type: "error",
      error: {
        type: "invalid_request_error",
        message: "leave thinking.budget_tokens out",
        details: { error_code: "unsupported", param: "thinking.budget_tokens" },
      },
      request_id: "req-1",
    });
  });

  it("reports a too large body as request_too_large", async () => {
    const app = createApp({ inference: new FakeInference(), log: recordingLog() });
    const reply = await new Promise<{ status: number; body: string }>((resolve) => {
      app.handle(
        {
          method: "POST",
          path: "/v1/messages",
          query: "",
          headers: new Map(),
          body: new Uint8Array(0),
          bodyBytes: 0,
          releaseBody: () => {},
          holdBody: () => () => {},
          address: "",
          signal: new AbortController().signal,
        },
        {
          send: (status, _headers, sent) => resolve({ status, body: String(sent) }),
          stream: () => assert.fail("no stream"),
        },
        new ServerError("body_too_large", "too large"),
      );
    });
    assert.equal(reply.status, 413);
    assert.equal(JSON.parse(reply.body).error.type, "request_too_large");
  });
});

describe("POST /v1/messages/count_tokens", () => {
  const { max_tokens: _, ...counted } = body;

  it("counts the prompt without generating anything", async () => {
    const inference = new FakeInference();
    const reply = await post({ body: counted }, inference, "/v1/messages/count_tokens");
    assert.deepEqual(JSON.parse(reply.body), { input_tokens: 8 });
    assert.deepEqual([inference.runs.length, inference.countRequests.length], [0, 1]);
  });

  it("stops waiting for the model when the client disconnects", async () => {
    const inference = new FakeInference();
    const hangUp = new AbortController();
    await post({ body: counted, signal: hangUp.signal }, inference, "/v1/messages/count_tokens");
    hangUp.abort();
    assert.equal(inference.countSignals[0]?.aborted, true);
  });
});
