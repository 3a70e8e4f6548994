// Engine choice as a user sees it: both engines behind the same server, the log of what `auto` chose and why, and
// rejected settings. Every test runs the command itself.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { realModel, tinyModel } from "../fixtures/models/models.ts";
import { type RunningServer, runCommand, startServer } from "../fixtures/serve.ts";

const messages = [{ role: "user" as const, content: "Write one sentence about the sea." }];
const greedy = { model: "default", temperature: 0, max_tokens: 24 };

/** Maximum time in ms by which an earlier, cancelled request may delay the next request. */
const soonMs = 2000;

const clientOf = ({ url }: RunningServer) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });

const models = {
  "the generated model": { path: tinyModel, length: 16_384 },
  "the real model": { path: async () => (await realModel()).path, length: 2048 },
};

/** Starts a server with the tiny model, one slot, and a context of 256 tokens. */
async function start(flags: readonly string[], environment: Record<string, string> = {}): Promise<RunningServer> {
  const small = ["--threads", "1", "--max-seqs", "1", "--max-model-len", "256"];
  return startServer(["-m", await tinyModel(), ...small, ...flags], environment);
}

for (const engine of ["wasm", "llama"] as const) {
  for (const [name, { path, length }] of Object.entries(models)) {
    describe(`--engine ${engine} with ${name}`, () => {
      let server: RunningServer;
      let client: OpenAI;

      before(async () => {
        const flags = ["--engine", engine, "--max-seqs", "1", "--max-model-len", String(length)];
        server = await startServer(["-m", await path(), ...flags]);
        client = clientOf(server);
      });
      after(async () => {
        await server.stop();
      });

      it("logs which engine runs, and lists the model", async () => {
        assert.match(server.output(), new RegExp(`engine chosen .*engine=${engine} reason="it is set"`));
        assert.match(
          server.output(),
          new RegExp(`model loaded .*engine="?${engine === "llama" ? "llama\\.cpp" : "wasm"}`),
        );
        const { data } = await client.models.list();
        assert.deepEqual(
          data.map(({ id }) => id),
          ["default", await path()],
        );
      });

      it("answers a chat with the same text, streamed and not", async () => {
        const whole = await client.chat.completions.create({ ...greedy, messages });
        assert.ok((whole.usage?.completion_tokens ?? 0) > 0);
        let text = "";
        for await (const chunk of await client.chat.completions.create({ ...greedy, messages, stream: true })) {
          text += chunk.choices[0]?.delta.content ?? "";
        }
        assert.equal(text, whole.choices[0]?.message.content);
      });

      it("completes a text, with the same words each time", async () => {
        const complete = () => client.completions.create({ ...greedy, prompt: "The sea is" });
        const [first, again] = [await complete(), await complete()];
        assert.ok((first.usage?.completion_tokens ?? 0) > 0);
        assert.equal(first.choices[0]?.text, again.choices[0]?.text);
      });

      it("gives the only slot to the next client when a client disconnects during a stream", async () => {
        // The server accepts additional fields that the client's types do not have.
        const long = { ...greedy, messages, max_tokens: length - 128, ignore_eos: true };
        const stream = await client.chat.completions.create({ ...long, stream: true });
        await stream[Symbol.asyncIterator]().next();
        stream.controller.abort();
        const answerMs = async () => {
          const start = performance.now();
          await client.chat.completions.create({ ...greedy, messages, max_tokens: 1 });
          return performance.now() - start;
        };
        const [next, alone] = [await answerMs(), await answerMs()];
        assert.ok(next < soonMs + 5 * alone, `the next one was answered after ${next} ms; alone it takes ${alone} ms`);
      });

      it("shuts down cleanly", async () => {
        assert.deepEqual(await server.stop(), { code: 0, signal: null });
      });
    });
  }
}

describe("where a model runs", () => {
  let directory = "";
  before(() => {
    directory = mkdtempSync(join(tmpdir(), "troupe-engine-"));
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  it("is a thread of the server for wasm and a process for llama, and isolate decides otherwise", async () => {
    for (const [flags, isInside] of [
      [["--engine", "wasm"], true],
      [["--engine", "wasm", "--isolate", "true"], false],
      [["--engine", "llama"], false],
    ] as const) {
      const server = await start(flags);
      assert.equal(server.enginePids()[0] === server.process.pid, isInside, flags.join(" "));
      const answer = await clientOf(server).chat.completions.create({ ...greedy, messages, max_tokens: 2 });
      assert.equal(answer.object, "chat.completion");
      await server.stop();
    }
  });

  it("maps llama.cpp for llama only", async () => {
    const nativeOf = async (engine: string) => {
      const report = `${engine}.json`;
      const options = `--report-on-signal --report-signal=SIGUSR2 --report-directory=${directory} --report-filename=${report}`;
      const server = await start(["--engine", engine, "--isolate", "false"], { NODE_OPTIONS: options });
      await clientOf(server).chat.completions.create({ ...greedy, messages, max_tokens: 2 });
      server.process.kill("SIGUSR2");
      const { sharedObjects } = await readReport(join(directory, report));
      await server.stop();
      return sharedObjects.filter((path) => /llama|ggml/.test(path));
    };
    assert.deepEqual(await nativeOf("wasm"), []);
    assert.notDeepEqual(await nativeOf("llama"), []);
  });
});

/**
 * Reads a diagnostic report of Node.js. Waits until the file is complete, because it is created before its content is written.
 */
async function readReport(path: string): Promise<{ sharedObjects: string[] }> {
  for (let tries = 0; tries < 400; tries++) {
    await sleep(25);
    if (!existsSync(path)) continue;
    try {
      return JSON.parse(readFileSync(path, "utf8"));
    } catch {}
  }
  return assert.fail(`no report at ${path}`);
}

describe("--engine auto", () => {
  let cache = "";
  before(() => {
    cache = mkdtempSync(join(tmpdir(), "troupe-trials-"));
  });
  after(() => rmSync(cache, { recursive: true, force: true }));

  it("measures both engines at the first start, chooses the faster one and logs the figures", async () => {
    const server = await start(["--engine", "auto"], { XDG_CACHE_HOME: cache });
    const response = await fetch(`${server.url}/v1/system/info`);
    const { engines } = (await response.json()) as { engines: { engine: string; trial: Record<string, object> }[] };
    await server.stop();
    const [, engine, reason = ""] = /engine chosen .*engine=(llama|wasm) reason="([^"]+)"/.exec(server.output()) ?? [];
    assert.match(
      reason,
      /quicker in a trial .*wasm prompt \d+, decode \d+, 16 at once \d+, weights [\d.]+ MiB; llama prompt \d+/,
    );
    assert.equal(engines[0]?.engine, engine);
    assert.deepEqual(Object.keys(engines[0]?.trial ?? {}), ["wasm", "llama"]);
  });

  it("stores the result: later starts choose the same engine, with the same figures", async () => {
    const reasonOf = async () => {
      const server = await start(["--engine", "auto"], { XDG_CACHE_HOME: cache });
      await server.stop();
      return /engine chosen .*reason="([^"]+)"/.exec(server.output())?.[1];
    };
    const [one, other] = [await reasonOf(), await reasonOf()];
    assert.match(one ?? "", /quicker in a trial/);
    assert.equal(one, other);
  });
});

describe("bench", () => {
  it("measures the engine that is set", async () => {
    const quick = ["--cpu", "--threads", "1", "--max-seqs", "1", "--prompt-len", "32", "--gen-len", "4"];
    const rounds = ["--iterations", "1", "--warmup", "0", "--json"];
    for (const engine of ["llama", "wasm"]) {
      const argv = ["bench", "-m", await tinyModel(), "--engine", engine, ...quick, ...rounds];
      const { code, stdout, stderr } = await runCommand(argv);
      assert.equal(code, 0, stderr);
      const { model } = JSON.parse(stdout) as { model: { engine: string } };
      assert.ok(model.engine.startsWith(engine), model.engine);
    }
  });
});

describe("settings that an engine does not have", () => {
  it("are rejected if they would change the results", async () => {
    const model = await tinyModel();
    const serve = ["serve", "--port", "0", "--host", "127.0.0.1", "--cpu", "-m", model];
    const cases: readonly (readonly [flags: readonly string[], message: RegExp])[] = [
      [["--engine", "gpu"], /--engine expects one of auto, llama, wasm, remote; got "gpu"/],
      [["--no-kv-cache"], /"--no-kv-cache" has no meaning with continuous batching/],
      [["--pa-block-size", "30"], /--pa-block-size expects a multiple of 4 from 4 to 256; got 30/],
      [["--engine", "wasm", "--pa-cache-type", "q4_0"], /got wasm, which cannot: it has no cache_type q4_0/],
    ];
    for (const [flags, message] of cases) {
      const { code, stderr } = await runCommand([...serve, ...flags]);
      assert.equal(code, 2, stderr);
      assert.match(stderr, message);
      assert.doesNotMatch(stderr, /\n {4}at /, "a person is shown a stack");
    }
  });

  it("cause a warning if they would not", async () => {
    const outputOf = async (engine: string) => {
      const server = await start(["--engine", engine, "--pa-block-size", "64"]);
      await server.stop();
      return server.output();
    };
    assert.match(await outputOf("llama"), /WARN.*block_size has no effect/);
    assert.doesNotMatch(await outputOf("wasm"), /block_size/);
  });
});
