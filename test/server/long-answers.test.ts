// Long responses of tens of megabytes. Every HTTP server implementation sends them in chunks at the reader's pace. The real
// command sends them with a small heap and does not run out of memory.
import assert from "node:assert/strict";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { GenerateEvent } from "../../engines/generation.ts";
import { done, finish } from "../fixtures/fakes/fake-inference.ts";
import { loadableEdges, startServer as startFake, type TestServer } from "../fixtures/http-server.ts";
import { tinyModel } from "../fixtures/models/models.ts";
import { startServer } from "../fixtures/serve.ts";
import { recordsOf } from "../fixtures/text/logprobs.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

const tokenCount = 20_000;
const mebibyte = 2 ** 20;

/** Returns the text of a long response: about 27 MB as JSON. */
function longText(): GenerateEvent[] {
  const one = (i: number) => ({ token: `word${i}`, bytes: [...Buffer.from(`word${i}`)], logprob: -1 / (i + 1) });
  const top = Array.from({ length: 20 }, (_, i) => one(i));
  const logprobs = recordsOf(Array.from({ length: 100 }, (_, i) => ({ ...one(i), top })));
  return Array.from({ length: tokenCount / 100 }, () => ({ type: "text", choice: 0, text: "x".repeat(100), logprobs }));
}

interface Asked {
  readonly response: IncomingMessage;
  /** Reads the whole body. */
  read(): Promise<string>;
}

/** Sends a request. Does not read the body until read() is called. */
function ask(server: Pick<TestServer, "url">, path: string, body: object): Promise<Asked> {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json" };
    const asked = httpRequest(server.url + path, { method: "POST", headers, agent: false }, (response) => {
      const read = async () => {
        const chunks: Buffer[] = [];
        for await (const chunk of response) chunks.push(chunk as Buffer);
        return Buffer.concat(chunks).toString();
      };
      resolve({ response, read });
    });
    asked.on("error", reject);
    asked.end(JSON.stringify(body));
  });
}

/** Returns the size in bytes of the process's heap and external memory. */
function heldBytes(): number {
  for (let round = 0; round < 3; round++) collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const cases = [
  ["/v1/chat/completions", { messages: "hi", logprobs: true, top_logprobs: 20 }],
  ["/v1/completions", { prompt: "hi", logprobs: 5 }],
  ["/v1/responses", { input: "hi", store: false, top_logprobs: 20, include: ["message.output_text.logprobs"] }],
  ["/v1/responses", { input: "hi", store: false, stream: true, include: ["message.output_text.logprobs"] }],
  ["/v1/embeddings", { input: Array.from({ length: 1000 }, () => "a") }],
] as const;

for (const edge of loadableEdges()) {
  describe(`a long answer on the ${edge} edge`, async () => {
    const server = await startFake(edge, { config: { readerStallMs: 10_000 } });
    after(() => server.stop());
    const vectors = Array.from({ length: 1000 }, (_, i) => new Float32Array(2000).fill(1 / (i + 3)));
    server.inference.embedder = async () => ({ vectors, promptTokens: 1 });
    const events = longText();
    server.inference.script = () => [...events.map((event) => [event]), [finish(), done]];

    for (const [path, body] of cases) {
      const isStream = "stream" in body;
      it(`${path}${isStream ? ", streamed," : ""} is generated while it is read, and complete`, async () => {
        const before = heldBytes();
        const { response, read } = await ask(server, path, body);
        assert.equal(response.statusCode, 200);
        assert.equal(response.headers["content-length"], undefined);
        await sleep(300);
        const held = heldBytes() - before;
        assert.ok(held < 20 * mebibyte, `${Math.round(held / mebibyte)} MiB are held while nothing is read`);
        const text = await read();
        assert.ok(text.length > 10 * mebibyte, `${text.length} characters`);
        if (isStream) {
          const [last] = text.match(/(?<=^event: response\.completed\ndata: ).*$/m) ?? [];
          assert.equal(JSON.parse(last ?? "{}").response.output[0].content[0].logprobs.length, tokenCount);
          assert.ok(text.endsWith("data: [DONE]\n\n"));
        } else JSON.parse(text);
      });
    }

    it("is aborted if its reader stalls, and frees its memory", async () => {
      const stalled = await startFake(edge, { config: { readerStallMs: 100 } });
      try {
        stalled.inference.script = server.inference.script;
        const { response, read } = await ask(stalled, "/v1/chat/completions", { messages: "hi", logprobs: true });
        assert.equal(response.statusCode, 200);
        await sleep(1500);
        await assert.rejects(read(), /aborted|ECONNRESET/);
      } finally {
        await stalled.stop();
      }
    });

    it("has a Content-Length if it is short", async () => {
      const script = server.inference.script;
      server.inference.script = () => [
        events.slice(0, 1).map((event) => ({ ...event, logprobs: one })),
        [finish(), done],
      ];
      const one = recordsOf([{ token: "a", bytes: [97], logprob: -1, top: [] }]);
      const { response, read } = await ask(server, "/v1/chat/completions", { messages: "hi", logprobs: true });
      server.inference.script = script;
      const text = await read();
      assert.equal(response.headers["content-length"], String(Buffer.byteLength(text)));
      assert.equal(JSON.parse(text).choices[0].logprobs.content.length, 1);
    });
  });
}

describe("a server with a small heap", () => {
  it("survives several concurrent unstreamed responses with many logprobs", async () => {
    const flags = ["-m", await tinyModel(), "--threads", "1", "--max-seqs", "64", "--max-model-len", "700"];
    // As JavaScript objects the tokens of the response would take about 200 MB, more than this heap.
    const server = await startServer(flags, { NODE_OPTIONS: "--max-old-space-size=96" });
    try {
      const body = { messages: "hi", n: 32, max_tokens: 600, ignore_eos: true, logprobs: true, top_logprobs: 20 };
      const answers = await Promise.all([1, 2].map((seed) => ask(server, "/v1/chat/completions", { ...body, seed })));
      for (const { read } of answers) {
        const { choices } = JSON.parse(await read());
        assert.equal(choices.length, 32);
        for (const { message, logprobs } of choices) {
          assert.equal(logprobs.content.length, 600);
          const said = logprobs.content.flatMap(({ bytes }: { bytes: number[] }) => bytes);
          assert.equal(Buffer.from(said).toString(), message.content);
        }
      }
      assert.equal((await fetch(`${server.url}/health`)).status, 200);
    } finally {
      await server.stop();
    }
  });
});
