// Slow readers: clients that read slowly, do not read, or disconnect, against the real command. Tests which clients wait and
// when slots are freed. The generated model runs on one thread, so only counts and ratios of times are checked.
import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { tinyModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

type StreamingBody = OpenAI.ChatCompletionCreateParamsStreaming & { ignore_eos: boolean };

// With one compute thread, because two threads that wait for each other are a hundred times slower while other programs use the
// cores.
const flags = ["--threads", "1", "--max-model-len", "8192", "--shutdown-deadline-secs", "1"];
/** Request fields that produce about 1.6 KB per token, so that a stream exceeds the kernel's socket buffers. */
const wordy = { logprobs: true, top_logprobs: 20 };

const bodyOf = (changes: Partial<StreamingBody>): StreamingBody => ({
  model: "default",
  messages: [{ role: "user", content: "hi" }],
  ignore_eos: true,
  stream: true,
  ...changes,
});

const clientOf = ({ url }: RunningServer) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });

const finalUsage = (chunks: readonly OpenAI.ChatCompletionChunk[]) =>
  chunks.findLast(({ usage }) => usage)?.usage as OpenAI.CompletionUsage & Record<string, number>;

async function readWhole(client: OpenAI, changes: Partial<StreamingBody>): Promise<OpenAI.ChatCompletionChunk[]> {
  const chunks: OpenAI.ChatCompletionChunk[] = [];
  for await (const chunk of await client.chat.completions.create(bodyOf(changes))) chunks.push(chunk);
  return chunks;
}

async function msOf(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** Sends a request, and reads nothing until readOn() is called. */
function openStandingReader({ url }: RunningServer, changes: Partial<StreamingBody>): Socket {
  const body = JSON.stringify(bodyOf(changes));
  const { hostname: host, port } = new URL(url);
  const socket = connect({ host, port: Number(port) });
  socket.on("error", () => {});
  socket.pause();
  const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: ${host}\r\nContent-Type: application/json\r\n`;
  socket.write(`${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  return socket;
}

/** Reads until `[DONE]` or the end of the connection. Returns everything received. */
async function readOn(socket: Socket): Promise<string> {
  const pieces: string[] = [];
  socket.setEncoding("utf8");
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  const done = new Promise<void>((resolve) => {
    socket.on("data", (piece: string) => {
      pieces.push(piece);
      if ((pieces.at(-2) ?? "").slice(-20).concat(piece.slice(-20)).includes("data: [DONE]")) resolve();
    });
  });
  socket.resume();
  await Promise.race([closed, done]);
  socket.destroy();
  return pieces.join("");
}

describe("a reader that stalls for a while", () => {
  let server: RunningServer;
  before(async () => {
    server = await startServer(["-m", await tinyModel(), ...flags, "--max-seqs", "4"]);
  });
  after(() => server.stop());

  it("pauses only its own generation, and gets every token when it resumes", async () => {
    const client = clientOf(server);
    const big = { ...wordy, n: 3, max_tokens: 2000 };
    const unhinderedMs = await msOf(() => readWhole(client, big));

    const socket = openStandingReader(server, big);
    const standingMs = await msOf(async () => {
      const chunks = await readWhole(client, { max_tokens: 500 });
      assert.equal(finalUsage(chunks).completion_tokens, 500);
      await sleep(1.5 * unhinderedMs);
    });
    const text = await readOn(socket);
    assert.equal(text.split('"top_logprobs":[').length - 1, 6000);
    assert.match(text, /data: \[DONE\]\n\n/);
    // Time in ms from the engine's first to its last token. Without back pressure, the engine would have finished, and
    // the server would have buffered everything, long before the reader resumed.
    const generatedMs = 1000 * Number(/"total_completion_time_sec":([\d.]+)/.exec(text)?.[1]);
    assert.ok(
      generatedMs > standingMs,
      `all was generated in ${generatedMs} ms; the reader stood for ${standingMs} ms`,
    );
  });
});

describe("a reader that never reads", () => {
  let server: RunningServer;
  before(async () => {
    server = await startServer(["-m", await tinyModel(), ...flags, "--max-seqs", "1", "--stalled-reader-secs", "2"]);
  });
  after(() => server.stop());

  it("gives its slot to a request that waits, and is cut off after stalled_reader_secs", async () => {
    const socket = openStandingReader(server, { ...wordy, max_tokens: 8000 });
    await sleep(300);
    const waiting = await clientOf(server).chat.completions.create(
      { ...bodyOf({ max_tokens: 5 }), stream: false },
      { timeout: 60_000 },
    );
    assert.equal(waiting.usage?.completion_tokens, 5);
    await sleep(3000);
    const text = await readOn(socket);
    assert.ok(!text.includes("data: [DONE]"), "the stream was not cut off");
    const tokens = text.split('"top_logprobs":[').length - 1;
    assert.ok(tokens < 8000, "the request that waited only came after all of the stream");
  });
});

describe("a request of many choices", () => {
  it("gets them all, because one step of the engine never overruns its stream", async () => {
    const narrow = ["--threads", "1", "--max-seqs", "64", "--max-model-len", "512"];
    const server = await startServer(["-m", await tinyModel(), ...narrow]);
    try {
      const chunks = await readWhole(clientOf(server), { n: 64, max_tokens: 300 });
      assert.equal(chunks.filter(({ choices }) => choices[0]?.finish_reason === "length").length, 64);
      assert.equal(finalUsage(chunks).completion_tokens, 64 * 300);
    } finally {
      await server.stop();
    }
  });
});

describe("clients that hang up", () => {
  const slots = 4;
  const shortLength = 1000;
  const longLength = 6 * shortLength;
  const longPrompt = { messages: [{ role: "user" as const, content: "word ".repeat(900) }] };
  let server: RunningServer;
  let client: OpenAI;
  let shortMs = 0;

  const fillSlots = <T>(start: (index: number) => Promise<T>) =>
    Promise.all(Array.from({ length: slots }, (_, i) => start(i)));

  /** Asserts that a new request does not wait for the abandoned requests, which would take 3 x `shortMs` or more. */
  async function assertAnsweredSoon(): Promise<void> {
    const ms = await msOf(() => readWhole(client, { max_tokens: 2 }));
    assert.ok(ms < 2 * shortMs, `a new request took ${ms} ms; ${shortLength} tokens in every slot take ${shortMs} ms`);
  }

  before(async () => {
    // The prefix cache is disabled, because with it repeated prompts would need no prefill.
    const limits = ["--max-seqs", String(slots), "--prefix-cache-n", "0"];
    server = await startServer(["-m", await tinyModel(), ...flags, ...limits]);
    client = clientOf(server);
    shortMs = await msOf(() => fillSlots(() => readWhole(client, { max_tokens: shortLength })));
  });
  after(() => server.stop());

  it("during a stream free their slots at once", async () => {
    const streams = await fillSlots(() => client.chat.completions.create(bodyOf({ max_tokens: longLength })));
    await Promise.all(streams.map(async (stream) => (await stream[Symbol.asyncIterator]().next()).value));
    for (const { controller } of streams) controller.abort();
    await assertAnsweredSoon();
  });

  it("while they wait for a complete response free their slots at once", async () => {
    const abort = new AbortController();
    const answers = fillSlots(() =>
      client.chat.completions.create(
        { ...bodyOf({ max_tokens: longLength }), stream: false },
        { signal: abort.signal },
      ),
    );
    const refused = assert.rejects(answers, OpenAI.APIUserAbortError);
    await sleep(shortMs / 2);
    abort.abort();
    await refused;
    await assertAnsweredSoon();
  });

  it("while their prompt is processed free their slots at once", async () => {
    const promptMs =
      1000 * finalUsage(await readWhole(client, { ...longPrompt, max_tokens: 1 })).total_prompt_time_sec!;
    const abort = new AbortController();
    let begun = 0;
    const refused = fillSlots(async () => {
      const body = bodyOf({ ...longPrompt, max_tokens: longLength });
      await assert.rejects(
        client.chat.completions.create(body, { signal: abort.signal }).then(() => begun++),
        OpenAI.APIUserAbortError,
      );
    });
    await sleep(promptMs);
    abort.abort();
    await refused;
    assert.equal(begun, 0, "the prompts were done before the clients hung up");
    await assertAnsweredSoon();
  });
});
