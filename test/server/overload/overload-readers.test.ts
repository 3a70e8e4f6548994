// Stalled readers in addition to active ones, against the real command with the generated model. A stalled reader delays no
// other client. If it resumes reading in time, it loses nothing; otherwise its request fails.
import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { openStandingReader, readOn } from "../../fixtures/overload/raw-client.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

const slots = 2;
const standing = 4;
const longAnswer = 4000;

async function start(stalledReaderSecs: number, edge: string = loadableEdges()[0] ?? "node"): Promise<RunningServer> {
  const limits = ["--max-seqs", String(slots), "--stalled-reader-secs", String(stalledReaderSecs), "--edge", edge];
  const common = ["--threads", "1", "--max-model-len", "8192", "--shutdown-deadline-secs", "0"];
  return startServer(["-m", await tinyModel(), ...common, ...limits]);
}

/** Request that produces about 1.6 KB per token, so that the response exceeds the kernel's socket buffers. */
const wordyBody = {
  messages: [{ role: "user", content: "hi" }],
  max_tokens: longAnswer,
  ignore_eos: true,
  stream: true,
  logprobs: true,
  top_logprobs: 20,
};

async function assertAnswered({ url }: RunningServer): Promise<void> {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0, timeout: 300_000 });
  const messages = [{ role: "user" as const, content: "hi" }];
  const body = { model: "default", messages, max_tokens: 20, ignore_eos: true };
  const { usage } = await client.chat.completions.create(body);
  assert.equal(usage?.completion_tokens, 20);
}

/** Returns the number of finished requests in the access log. */
const endedCount = (server: RunningServer) => server.output().split("path=/v1/chat/completions").length - 1;

async function assertWhole(socket: Socket): Promise<void> {
  const text = await readOn(socket);
  assert.equal(tokenCount(text), longAnswer);
  assert.match(text, /data: \[DONE\]\n\n/);
}

const tokenCount = (text: string) => text.split('"top_logprobs":[').length - 1;

// Tests all HTTP server implementations concurrently, because the tests mostly wait.
describe("a reader that stalls for less than stalled_reader_secs", { concurrency: true }, () => {
  // By default uWebSockets.js closes a connection whose client reads nothing for 8 to 12 seconds.
  const standingMs = 16_000;

  for (const edge of loadableEdges()) {
    it(`stays connected on the ${edge} edge, and gets every token when it resumes`, async () => {
      const server = await start(300, edge);
      try {
        const socket = openStandingReader(server.url, wordyBody);
        await sleep(standingMs);
        await assertWhole(socket);
      } finally {
        await server.stop();
      }
    });
  }
});

describe("more stalled readers than slots", () => {
  it("do not delay other clients, and get every token when they resume", async () => {
    const server = await start(300);
    try {
      const sockets = Array.from({ length: standing }, () => openStandingReader(server.url, wordyBody));
      for (let turn = 0; turn < 4; turn++) await assertAnswered(server);
      while (endedCount(server) < 4) await sleep(10);
      assert.equal(endedCount(server), 4, "a standing reader's request has ended though it was not read");
      // Each stalled reader has lost its slot, and gets a slot again when it resumes reading.
      await Promise.all(sockets.map(assertWhole));
      await assertAnswered(server);
    } finally {
      await server.stop();
    }
  });

  it("are all disconnected after stalled_reader_secs", async () => {
    const server = await start(1);
    try {
      const sockets = Array.from({ length: standing }, () => openStandingReader(server.url, wordyBody));
      while (endedCount(server) < standing) await sleep(50);
      for (const text of await Promise.all(sockets.map(readOn))) {
        assert.doesNotMatch(text, /"completion_tokens"/);
        assert.ok(tokenCount(text) < longAnswer);
      }
      await assertAnswered(server);
    } finally {
      await server.stop();
    }
  });
});
