// Text mode: remote models on servers that return only text. A real troupe stands behind proxies that expose only its chat
// completions and model names. The troupe in front of them has no file of the model.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { realModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

/**
 * What a proxy does with chat requests: "none" forwards them, a number is the status of its response, "cut" closes the
 * connection after the first bytes, "stall" sends no more than these.
 */
type Fault = "none" | "cut" | "stall" | number;

class ChatOnly {
  fault: Fault = "none";
  chats = 0;
  /** Number of next chat requests whose connections are closed before a response, together, when all have arrived. */
  broken = 0;
  readonly #held: ServerResponse[] = [];
  readonly #server: Server;

  private constructor(far: string) {
    this.#server = createServer((asked, reply) => {
      const { method, headers } = asked;
      if (asked.url === "/v1/models") {
        reply
          .setHeader("content-type", "application/json")
          .end('{"object":"list","data":[{"id":"default","object":"model"}]}');
        return;
      }
      if (asked.url !== "/v1/chat/completions") {
        reply.writeHead(404).end();
        return;
      }
      this.chats++;
      if (this.broken > 0) {
        this.#held.push(reply);
        if (--this.broken === 0) for (const one of this.#held.splice(0)) one.destroy();
        return;
      }
      const { fault } = this;
      if (typeof fault === "number") {
        asked
          .resume()
          .on("end", () => reply.writeHead(fault, { "content-type": "application/json" }).end('{"error":"busy"}'));
        return;
      }
      const passed = request(`${far}${asked.url}`, { method, headers }, (answer) => {
        reply.writeHead(answer.statusCode ?? 500, answer.headers);
        if (fault === "cut")
          answer.once("data", (piece) => reply.write(piece, () => setTimeout(() => reply.destroy(), 50)));
        else if (fault === "stall") answer.once("data", (piece) => reply.write(piece));
        else answer.pipe(reply);
      });
      passed.on("error", () => reply.destroy());
      reply.on("close", () => passed.destroy());
      asked.pipe(passed);
    });
  }

  static async start(far: string): Promise<ChatOnly> {
    const proxy = new ChatOnly(far);
    await proxy.listen(0);
    return proxy;
  }

  async listen(port: number): Promise<void> {
    this.#server.listen(port, "127.0.0.1");
    await once(this.#server, "listening");
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

interface Chat {
  readonly choices: readonly {
    readonly finish_reason: string;
    readonly message: {
      readonly content: string | null;
      readonly tool_calls?: readonly { readonly function: { readonly name: string; readonly arguments: string } }[];
    };
  }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly error?: { readonly code: string; readonly message: string; readonly param: string | null };
}

const messages = [{ role: "user" as const, content: "Count from one to ten in words." }];
const weather = {
  type: "function" as const,
  function: {
    name: "weather",
    description: "Weather of a city",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};

describe("a model on servers that give text only", { timeout: 240_000 }, () => {
  let far: RunningServer;
  let near: RunningServer;
  const proxies: ChatOnly[] = [];
  before(async () => {
    far = await startServer(["-m", (await realModel()).path, "--max-seqs", "4"]);
    proxies.push(await ChatOnly.start(far.url), await ChatOnly.start(far.url));
    const urls = proxies.flatMap(({ port }) => ["--url", `http://127.0.0.1:${port}/v1`]);
    near = await startServer(["-m", "a-name", "--engine", "remote", ...urls, "--upstream-mode", "text"]);
  });
  after(async () => {
    await near?.stop();
    await far?.stop();
    for (const proxy of proxies) proxy.close();
  });

  async function post(server: RunningServer, path: string, body: object): Promise<{ status: number; body: Chat }> {
    const headers = { "content-type": "application/json" };
    const reply = await fetch(`${server.url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    return { status: reply.status, body: (await reply.json()) as Chat };
  }
  const chat = (server: RunningServer, body: object) =>
    post(server, "/v1/chat/completions", { messages, temperature: 0, max_tokens: 16, ...body });

  it("answers as they do, with their usage, their structured output and their tool calls", async () => {
    const schema = {
      type: "object",
      properties: { n: { type: "integer" } },
      required: ["n"],
      additionalProperties: false,
    };
    const format = { type: "json_schema", json_schema: { name: "n", schema, strict: true } };
    for (const asked of [
      {},
      { stop: ["two"], max_tokens: 32 },
      { n: 2 },
      { response_format: format, max_tokens: 24 },
      { tools: [weather], tool_choice: "required", max_tokens: 48 },
    ]) {
      const [here, there] = await Promise.all([chat(near, asked), chat(far, asked)]);
      assert.equal(here.status, 200, JSON.stringify(here.body));
      const plain = ({ choices }: Chat) =>
        choices.map(({ finish_reason, message: { content, tool_calls } }) => [
          finish_reason,
          content,
          tool_calls?.map(({ function: { name, arguments: args } }) => [name, args]),
        ]);
      assert.deepEqual(plain(here.body), plain(there.body), JSON.stringify(asked));
      const { prompt_tokens, completion_tokens } = there.body.usage;
      assert.deepEqual(
        [here.body.usage.prompt_tokens, here.body.usage.completion_tokens],
        [prompt_tokens, completion_tokens],
      );
    }
    interface Listed {
      readonly data: readonly { readonly id: string; readonly status: string; readonly max_model_len?: number }[];
    }
    const models = (await (await fetch(`${near.url}/v1/models`)).json()) as Listed;
    assert.ok(
      models.data.every(({ max_model_len }) => max_model_len === undefined),
      "its context is not known",
    );
    assert.deepEqual(
      models.data.map(({ status }) => status),
      models.data.map(() => "loaded"),
    );
  });

  it("serves the official client's streams, responses and messages", async () => {
    const client = new OpenAI({ baseURL: `${near.url}/v1`, apiKey: "none", maxRetries: 0 });
    const expected = (await chat(far, {})).body.choices[0]?.message.content;
    const stream = client.chat.completions.stream({ model: "default", messages, temperature: 0, max_tokens: 16 });
    let pieces = 0;
    for await (const _ of stream) pieces++;
    assert.equal((await stream.finalChatCompletion()).choices[0]?.message.content, expected);
    assert.ok(pieces > 3, "it arrives in pieces");
    const response = await client.responses.create({
      ...{ model: "default", input: messages[0]?.content ?? "", temperature: 0, max_output_tokens: 16 },
    });
    assert.equal(response.output_text, expected);
    assert.ok((response.usage?.input_tokens ?? 0) > 5);
    const { status, body } = await post(near, "/v1/messages", {
      model: "default",
      messages,
      max_tokens: 16,
      temperature: 0,
    });
    assert.equal(status, 200);
    const [block] = (body as unknown as { content: { text: string }[] }).content;
    assert.equal(block?.text, expected);
  });

  /** Returns the sum of the samples of a metric. */
  async function sampled({ url }: RunningServer, metric: string): Promise<number> {
    const lines = (await (await fetch(`${url}/metrics`)).text()).split("\n");
    return lines
      .filter((line) => line.startsWith(metric))
      .reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
  }

  it("counts its requests, tokens and first tokens in the metrics, and each server's requests", async () => {
    const names = [
      ...[
        "service_generated_tokens_total",
        "service_remote_requests_total",
        "service_time_to_first_token_seconds_count",
      ],
      'service_sequences_completed_total{reason="length"',
    ];
    const counts = async () => await Promise.all(names.map((name) => sampled(near, name)));
    const before = await counts();
    await chat(near, { max_tokens: 5 });
    const stream = { messages, max_tokens: 5, temperature: 0, stream: true };
    const headers = { "content-type": "application/json" };
    const reply = await fetch(`${near.url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: JSON.stringify(stream),
    });
    await reply.text();
    const added = (await counts()).map((now, i) => now - (before[i] as number));
    assert.deepEqual(added, [10, 2, 1, 2], names.join(", "));
    assert.equal(await sampled(near, "service_remote_up"), proxies.length);
  });

  it("rejects requests that need token ids, with a specific error", async () => {
    const failed = 'service_sequences_completed_total{reason="error"';
    const before = await sampled(near, failed);
    for (const [field, asked] of [
      ["logit_bias", { logit_bias: { 5: 1 } }],
      ["logprobs", { logprobs: true }],
      ["top_k", { top_k: 5 }],
      ["grammar", { grammar: { type: "regex", value: "a+" } }],
    ] as const) {
      const { status, body } = await chat(near, asked);
      assert.deepEqual([status, body.error?.code], [400, "unsupported"], `${field}: ${JSON.stringify(body)}`);
      assert.ok(body.error?.message.startsWith(field), body.error?.message);
    }
    const completion = await post(near, "/v1/completions", { prompt: "a", max_tokens: 2 });
    assert.deepEqual([completion.status, completion.body.error?.code], [400, "unsupported"]);
    assert.equal(await sampled(near, failed), before, "no generation has failed");
    const embedding = await post(near, "/v1/embeddings", { input: "a" });
    assert.equal(embedding.status, 400, JSON.stringify(embedding.body));
  });

  it("sends prompts with the same beginning to one server, and the next attempt to the other", async () => {
    const counts = proxies.map(({ chats }) => chats);
    for (let i = 0; i < 4; i++) await chat(near, { max_tokens: 1 });
    const added = proxies.map(({ chats }, i) => chats - (counts[i] ?? 0));
    assert.deepEqual([...added].sort(), [0, 4], "one of them has all");
    const used = proxies[added.indexOf(4)] as ChatOnly;
    const retries = `service_remote_retries_total{url="http://127.0.0.1:${used.port}"}`;
    const before = await sampled(near, retries);
    used.fault = 503;
    assert.equal((await chat(near, { max_tokens: 1 })).status, 200);
    assert.equal((await sampled(near, retries)) - before, 1, "the retry counts on the server that failed");
    for (const proxy of proxies) proxy.fault = 429;
    const busy = await chat(near, {});
    assert.deepEqual([busy.status, busy.body.error?.code], [429, "queue_full"]);
    for (const proxy of proxies) proxy.fault = 500;
    const failed = await chat(near, {});
    assert.deepEqual([failed.status, failed.body.error?.code], [503, "model_failed"]);
    for (const proxy of proxies) proxy.fault = "none";
    for (const until = Date.now() + 20_000; (await chat(near, { max_tokens: 1 })).status !== 200; await sleep(200)) {
      assert.ok(Date.now() < until, "the servers are found again");
    }
  });

  it("repeats requests whose connections break at once", async () => {
    const alone = await ChatOnly.start(far.url);
    const flags = ["--engine", "remote", "--url", `http://127.0.0.1:${alone.port}/v1`, "--upstream-mode", "text"];
    const front = await startServer(["-m", "a-name", ...flags]);
    try {
      alone.broken = 4;
      const answers = await Promise.all(Array.from({ length: 4 }, () => chat(front, { max_tokens: 2 })));
      assert.deepEqual(
        answers.map(({ status, body }) => [status, body.error?.message]),
        answers.map(() => [200, undefined]),
      );
      assert.equal(alone.broken, 0);
    } finally {
      await front.stop();
      alone.close();
    }
  });

  it("lets requests wait for the server that is up while the other is down", async () => {
    const gone = await ChatOnly.start(far.url);
    const urls = [proxies[0] as ChatOnly, gone].flatMap(({ port }) => ["--url", `http://127.0.0.1:${port}/v1`]);
    const flags = ["--engine", "remote", ...urls, "--upstream-mode", "text", "--max-seqs", "1"];
    const single = await startServer(["-m", "a-name", ...flags]);
    try {
      gone.close();
      const texts = Array.from({ length: 6 }, (_, i) => `${i} is a number. Say it in words.`);
      const asked = Promise.all(
        texts.map((content) => chat(single, { messages: [{ role: "user", content }], max_tokens: 32 })),
      );
      let isDone = false;
      let mostWaiting = 0;
      const done = () => {
        isDone = true;
      };
      asked.then(done, done);
      while (!isDone) mostWaiting = Math.max(mostWaiting, await sampled(single, "service_sequences_waiting"));
      const answers = await asked;
      assert.ok(mostWaiting > 0, "the requests that wait are counted");
      assert.deepEqual(
        answers.map(({ status }) => status),
        texts.map(() => 200),
      );

      // Requests that are cancelled while they wait leave the queue at once.
      const headers = { "content-type": "application/json" };
      const body = JSON.stringify({ messages, stream: true, max_tokens: 2000 });
      const [first, ...others] = Array.from({ length: 4 }, () => {
        const abort = new AbortController();
        fetch(`${single.url}/v1/chat/completions`, { method: "POST", headers, body, signal: abort.signal })
          .then((reply) => reply.text())
          .catch(() => {});
        return abort;
      });
      const until = async (waiting: number) => {
        const end = Date.now() + 10_000;
        while ((await sampled(single, "service_sequences_waiting")) !== waiting) {
          assert.ok(Date.now() < end, `${waiting} requests wait`);
          await sleep(10);
        }
      };
      await until(3);
      for (const abort of others) abort.abort();
      await until(0);
      assert.equal(await sampled(single, "service_sequences_running"), 1);
      first?.abort();
    } finally {
      await single.stop();
    }
  });

  it("ends a request with queue_timeout if its second attempt finds no free slot in time", async () => {
    const [stalling, failing] = await Promise.all([ChatOnly.start(far.url), ChatOnly.start(far.url)]);
    stalling.fault = "stall";
    failing.fault = 500;
    const urls = [stalling, failing].flatMap(({ port }) => ["--url", `http://127.0.0.1:${port}/v1`]);
    const limits = ["--max-seqs", "1", "--queue-timeout-secs", "1"];
    const front = await startServer([
      "-m",
      "a-name",
      "--engine",
      "remote",
      ...urls,
      "--upstream-mode",
      "text",
      ...limits,
    ]);
    const stop = new AbortController();
    try {
      const reply = await fetch(`${front.url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ messages, stream: true, max_tokens: 100 }),
        signal: stop.signal,
      });
      await reply.body?.getReader().read();
      const before = failing.chats;
      const late = await chat(front, { max_tokens: 1 });
      assert.deepEqual([late.status, late.body.error?.code], [503, "queue_timeout"], JSON.stringify(late.body));
      assert.equal(failing.chats, before + 1, "the first attempt was sent");
    } finally {
      stop.abort();
      await front.stop();
      for (const proxy of [stalling, failing]) proxy.close();
    }
  });

  it("ends a broken stream with a retryable error, and forwards cancellations to the server", async () => {
    for (const proxy of proxies) proxy.fault = "cut";
    const headers = { "content-type": "application/json" };
    const ask = (signal?: AbortSignal) => {
      const body = JSON.stringify({ messages, stream: true, max_tokens: 400 });
      return fetch(`${near.url}/v1/chat/completions`, { method: "POST", headers, body, ...(signal && { signal }) });
    };
    assert.match(await (await ask()).text(), /"code":"model_failed"/);
    for (const proxy of proxies) proxy.fault = "none";
    const stop = new AbortController();
    const reply = await ask(stop.signal);
    await reply.body?.getReader().read();
    const running = async (): Promise<number> => {
      const list = (await (await fetch(`${far.url}/v1/system/requests`)).json()) as { data: unknown[] };
      return list.data.length;
    };
    assert.ok((await running()) > 0);
    stop.abort();
    for (const until = Date.now() + 10_000; (await running()) > 0; await sleep(20)) assert.ok(Date.now() < until);
  });
});
