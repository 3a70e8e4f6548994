// Streams of POST /v1/responses from the real command, read to the end and checked strictly. Each stream must have exactly one
// final event, however the generation ends, and GET must return the same result.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { realModel } from "../fixtures/models/models.ts";
import { checkResponseStream, parseResponseStream } from "../fixtures/responses-checker.ts";
import { type RunningServer, startServer } from "../fixtures/serve.ts";

const tool = {
  type: "function",
  name: "get_weather",
  parameters: {
    type: "object",
    properties: { city: { type: "string", enum: ["Rome", "Paris"] } },
    required: ["city"],
    additionalProperties: false,
  },
};
const endless = { input: "Count.", ignore_eos: true, max_output_tokens: 800 };

describe("a stream of responses", () => {
  let server: RunningServer;

  before(async () => {
    const { path } = await realModel();
    // The llama engine runs in a separate process, so that it can be killed during a stream.
    server = await startServer(["-m", path, "--engine", "llama", "--max-model-len", "1024", "--max-seqs", "2"]);
  });
  after(async () => {
    await server.stop();
  });

  const post = (body: object) =>
    fetch(`${server.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ temperature: 0, stream: true, ...body }),
    });

  /** Reads a stream to its end. Calls `during` with the response's id when the first text has arrived. */
  async function recorded(body: object, during?: (id: string) => Promise<unknown>) {
    const reply = await post(body);
    assert.equal(reply.status, 200);
    let text = "";
    let isCalled = false;
    for await (const piece of reply.body!.pipeThrough(new TextDecoderStream())) {
      text += piece;
      if (isCalled || during === undefined || !text.includes("output_text.delta")) continue;
      isCalled = true;
      await during(/"id":"(resp_[0-9a-f]+)"/.exec(text)![1]!);
    }
    const events = parseResponseStream(text);
    return { events, response: checkResponseStream(events) };
  }

  const stored = async (id: unknown) =>
    (await fetch(`${server.url}/v1/responses/${id}`)).json() as Promise<{ status: string }>;

  it("ends as completed if the model has finished, and as incomplete at the token limit", async () => {
    const whole = await recorded({ input: "What is 2 + 2? Answer with a number." });
    assert.equal(whole.events.at(-1)?.type, "response.completed");
    const cut = await recorded({ input: "What is 2 + 2? Answer with a number.", max_output_tokens: 3 });
    assert.equal(cut.events.at(-1)?.type, "response.incomplete");
    assert.deepEqual(cut.response.incomplete_details, { reason: "max_output_tokens" });
    assert.equal((await stored(cut.response.id)).status, "incomplete");
  });

  it("contains calls, complete and cut off, and output that follows a schema", async () => {
    const calling = { input: "How is the weather?", tools: [tool], tool_choice: "required" };
    const one = await recorded({ ...calling, parallel_tool_calls: false });
    assert.equal(one.events.at(-1)?.type, "response.completed");
    assert.ok(one.events.some(({ type }) => type === "response.function_call_arguments.done"));
    for (const max_output_tokens of [1, 5, 12, 20]) await recorded({ ...calling, max_output_tokens });
    const format = { type: "json_schema", name: "city", schema: tool.parameters };
    const { response } = await recorded({ input: "Name a city.", text: { format } });
    assert.ok(["Rome", "Paris"].includes(JSON.parse(response.output_text as string).city));
  });

  it("has one final event if its background run is cancelled or deleted", async () => {
    const cancelled = await recorded({ ...endless, background: true }, (id) =>
      fetch(`${server.url}/v1/responses/${id}/cancel`, { method: "POST" }),
    );
    assert.equal(cancelled.events.at(-1)?.type, "response.incomplete");
    assert.equal((await stored(cancelled.response.id)).status, "cancelled");
    const deleted = await recorded({ ...endless, background: true }, (id) =>
      fetch(`${server.url}/v1/responses/${id}`, { method: "DELETE" }),
    );
    assert.equal(deleted.events.at(-1)?.type, "response.incomplete");
    assert.equal((await fetch(`${server.url}/v1/responses/${deleted.response.id}`)).status, 404);
  });

  it("is stored as interrupted if its client disconnects", async () => {
    const leaving = new AbortController();
    const reply = await fetch(`${server.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...endless, stream: true }),
      signal: leaving.signal,
    });
    const first = new TextDecoder().decode((await reply.body!.getReader().read()).value);
    const id = /"id":"(resp_[0-9a-f]+)"/.exec(first)![1];
    leaving.abort();
    const limit = Date.now() + 3000;
    while ((await stored(id)).status === "in_progress") {
      assert.ok(Date.now() < limit, "it is still in progress");
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    assert.equal((await stored(id)).status, "incomplete");
  });

  // This must be the last test, because the engine is reloaded afterwards.
  it("ends as failed if the engine crashes", async () => {
    const { events, response } = await recorded(endless, async () => {
      process.kill(server.enginePids().at(-1)!, "SIGKILL");
    });
    assert.equal(events.at(-1)?.type, "response.failed");
    assert.equal((response.error as { code: string }).code, "model_failed");
    assert.equal((await stored(response.id)).status, "failed");
  });
});
