// Remote model with the real command on both sides: one troupe runs the model; another in front of it has only the vocabulary.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { realModel } from "../../fixtures/models/models.ts";
import { type RunningServer, runCommand, startServer } from "../../fixtures/serve.ts";

const keyEnv = { FAR_KEY: "far-secret" };

interface Completion {
  readonly choices: readonly {
    readonly text?: string;
    readonly finish_reason: string;
    readonly message?: {
      readonly content: string | null;
      readonly tool_calls?: readonly { readonly function: { readonly name: string } }[];
    };
    readonly logprobs: unknown;
  }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly error?: { readonly code: string; readonly message: string };
}

async function post(server: RunningServer, path: string, body: object): Promise<Completion> {
  const headers = { "content-type": "application/json", authorization: "Bearer far-secret" };
  const reply = await fetch(`${server.url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  return (await reply.json()) as Completion;
}

async function until(isTrue: () => Promise<boolean>): Promise<void> {
  const limit = Date.now() + 30_000;
  while (!(await isTrue())) {
    assert.ok(Date.now() < limit, "it happens within 30 s");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const metric = async ({ url }: RunningServer, name: string) => {
  const headers = { authorization: "Bearer far-secret" };
  const text = await (await fetch(`${url}/metrics`, { headers })).text();
  return Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, "m").exec(text)?.[1]);
};

describe("a model on another troupe", () => {
  let far: RunningServer;
  let near: RunningServer;
  const upstreamFlags = (port: string) => [
    "-m",
    model,
    "--allow-completions-stream",
    "--port",
    port,
    "--max-seqs",
    "4",
  ];
  let model: string;
  before(async () => {
    model = (await realModel()).path;
    far = await startServer([...upstreamFlags("0"), "--api-key", "far-secret"]);
    const remote = [
      "--engine",
      "remote",
      "--url",
      `${far.url}/v1`,
      "--api-key-env",
      "FAR_KEY",
      "--probe-interval-secs",
      "1",
    ];
    near = await startServer(["-m", model, ...remote], keyEnv);
  });
  after(async () => {
    await near?.stop();
    await far?.stop();
  });

  const messages = [{ role: "user", content: "Count from one to ten in words." }];
  const same = async (path: string, body: object) => {
    const [here, there] = await Promise.all([post(near, path, body), post(far, path, body)]);
    assert.deepEqual(here.choices, there.choices);
    assert.equal(here.usage.completion_tokens, there.usage.completion_tokens);
    assert.equal(here.usage.prompt_tokens, there.usage.prompt_tokens);
    return here;
  };

  it("answers a chat with the same tokens and logprobs as the other troupe", async () => {
    const body = { messages, temperature: 0, max_tokens: 24, logprobs: true, top_logprobs: 2 };
    assert.equal((await same("/v1/chat/completions", body)).choices[0]?.finish_reason, "length");
  });

  it("ends at stop strings and end tokens, and has characters of several tokens whole", async () => {
    await same("/v1/completions", { prompt: "One, two, three,", temperature: 0, max_tokens: 20, stop: [" six"], n: 2 });
    await same("/v1/chat/completions", { messages: [{ role: "user", content: "Hi" }], temperature: 0, max_tokens: 60 });
    await same("/v1/completions", { prompt: "😀 🎉 🚀 😀 🎉 🚀 😀 🎉", temperature: 0, max_tokens: 20 });
  });

  it("keeps outputs to a schema, and calls tools", async () => {
    const schema = {
      type: "object",
      properties: {
        word: { type: "string", pattern: "^[a-zé]{3,6}$" },
        count: { type: "integer", minimum: 1, maximum: 9 },
      },
      required: ["word", "count"],
      additionalProperties: false,
    };
    const response_format = { type: "json_schema", json_schema: { name: "x", schema } };
    const formatted = await post(near, "/v1/chat/completions", { messages, response_format, max_tokens: 60 });
    const { word, count } = JSON.parse(formatted.choices[0]?.message?.content ?? "") as { word: string; count: number };
    assert.match(word, /^[a-zé]{3,6}$/);
    assert.ok(count >= 1 && count <= 9);
    const parameters = {
      type: "object",
      properties: { n: { enum: [1, 2, 3] } },
      required: ["n"],
      additionalProperties: false,
    };
    const tools = [{ type: "function", function: { name: "pick", parameters } }];
    const called = await post(near, "/v1/chat/completions", {
      messages,
      tools,
      tool_choice: "required",
      max_tokens: 90,
    });
    const [call] = called.choices[0]?.message?.tool_calls ?? [];
    assert.equal(call?.function.name, "pick");
  });

  it("returns the token ids of the other troupe, in a body and in a stream", async () => {
    const body = { prompt: "One, two, three,", temperature: 0, max_tokens: 6, return_token_ids: true };
    const { choices } = (await post(far, "/v1/completions", body)) as { choices: readonly { token_ids?: number[] }[] };
    assert.equal(choices[0]?.token_ids?.length, 6);
    const headers = { "content-type": "application/json", authorization: "Bearer far-secret" };
    const streamed = { method: "POST", headers, body: JSON.stringify({ ...body, stream: true }) };
    const text = await (await fetch(`${far.url}/v1/completions`, streamed)).text();
    const ids = [...text.matchAll(/"token_ids":\[([^\]]*)\]/g)].flatMap(([, list = ""]) =>
      list.split(",").filter(Boolean),
    );
    assert.deepEqual(ids.map(Number), choices[0]?.token_ids);
    assert.doesNotMatch(text, /"logprobs":\{/);
  });

  it("stops generating on the other troupe when the client disconnects", async () => {
    const leave = new AbortController();
    const body = JSON.stringify({ messages, stream: true, ignore_eos: true, max_tokens: 2000 });
    const headers = { "content-type": "application/json" };
    const reply = await fetch(`${near.url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body,
      signal: leave.signal,
    });
    await reply.body?.getReader().read();
    assert.equal(await metric(far, "service_sequences_running"), 1);
    leave.abort();
    await until(async () => (await metric(far, "service_sequences_running")) === 0);
    await until(async () => (await metric(near, "service_remote_requests_running")) === 0);
  });

  it("ends its streams with a retryable error when that server is killed, and is ready again with it", async () => {
    const { port } = new URL(far.url);
    const running = post(near, "/v1/chat/completions", { messages, ignore_eos: true, max_tokens: 2000 });
    await until(async () => (await metric(near, "service_remote_requests_running")) === 1);
    far.process.kill("SIGKILL");
    assert.equal((await running).error?.code, "model_failed");
    await until(async () => (await fetch(`${near.url}/ready`)).status === 503);
    const models = (await (await fetch(`${near.url}/v1/models`)).json()) as { data: readonly { status: string }[] };
    assert.equal(models.data.find(({ status }) => status !== undefined)?.status, "reloading");
    assert.equal((await post(near, "/v1/completions", { prompt: "x" })).error?.code, "model_loading");
    far = await startServer([...upstreamFlags(port), "--api-key", "far-secret"]);
    await until(async () => (await fetch(`${near.url}/ready`)).status === 200);
    await same("/v1/completions", { prompt: "One, two, three,", temperature: 0, max_tokens: 4 });
    assert.doesNotMatch(near.output(), /far-secret/);
  });

  it("rejects a wrong key, a missing url and an unset key at the start, with a specific error", async () => {
    const start = (flags: readonly string[], environment = {}) =>
      runCommand(["serve", "-m", model, "--engine", "remote", "--port", "0", ...flags], environment);
    const url = ["--url", far.url];
    const [wrong, none, unset] = await Promise.all([
      start([...url, "--api-key-env", "FAR_KEY"], { FAR_KEY: "wrong" }),
      start([]),
      start([...url, "--api-key-env", "NO_KEY_HERE"]),
    ]);
    assert.match(wrong.stderr, /status 401.*check api_key_env/);
    assert.match(none.stderr, /expects a url for every model/);
    assert.match(unset.stderr, /NO_KEY_HERE: it is not set/);
  });
});
