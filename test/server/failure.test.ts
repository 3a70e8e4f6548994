// What happens to clients when an engine dies under them, and when the server is told to stop.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { realModel } from "../fixtures/models.ts";
import { type RunningServer, startServer } from "../fixtures/serve.ts";

// A process of its own is what can be killed.
const flags = ["--max-model-len", "2048", "--max-seqs", "4", "--isolate", "true"];

interface Stream {
  /** Parsed `data:` bodies so far; the last is "[DONE]" when it ended well. */
  readonly data: unknown[];
  readonly ended: Promise<void>;
}

async function openStream(url: string, model: string, maxTokens: number): Promise<Stream> {
  const body = {
    model,
    messages: [{ role: "user", content: "Tell a long story." }],
    stream: true,
    max_tokens: maxTokens,
    ignore_eos: true,
  };
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  assert.equal(response.status, 200);
  const data: unknown[] = [];
  const ended = (async () => {
    let rest = "";
    for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line.startsWith("data: [DONE]")) data.push("[DONE]");
        else if (line.startsWith("data: ")) data.push(JSON.parse(line.slice(6)));
      }
    }
  })();
  return { data, ended };
}

async function ask(url: string, model: string): Promise<number> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "Hi" }], max_tokens: 2 }),
  });
  await response.arrayBuffer();
  return response.status;
}

async function until(isTrue: () => boolean, otherwise: string): Promise<void> {
  for (let i = 0; !isTrue(); i++) {
    assert.ok(i < 200, otherwise);
    await sleep(25);
  }
}

/** Milliseconds until the model answers again; in between it may only say 503. */
async function recoveryMs(url: string, model: string): Promise<number> {
  const start = performance.now();
  for (;;) {
    const status = await ask(url, model);
    if (status === 200) return performance.now() - start;
    assert.equal(status, 503, "while it loads again the answer is 503");
    assert.ok(performance.now() - start < 60_000, "the model does not come back");
    await sleep(20);
  }
}

describe("a server whose engine process dies", () => {
  let server: RunningServer;
  let directory = "";
  let models: string[] = [];

  before(async () => {
    const { path } = await realModel();
    directory = mkdtempSync(join(tmpdir(), "troupe-two-"));
    models = ["first.gguf", "second.gguf"].map((name) => join(directory, name));
    for (const model of models) copyFileSync(path, model);
    server = await startServer(["-m", models[0]!, "-m", models[1]!, ...flags]);
  });
  after(async () => {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  for (const signal of ["SIGABRT", "SIGKILL"] as const) {
    it(`ends its streams with an error after ${signal}, leaves the other model's alone, and answers again`, async () => {
      const [first, second] = models as [string, string];
      const doomed = await openStream(server.url, first, 2000);
      const other = await openStream(server.url, second, 150);
      while (doomed.data.length < 5 || other.data.length < 5) await sleep(5);
      const pidOf = (model: string) =>
        Number(
          [...server.output().matchAll(/model loaded.*model=(\S+) loadMs=\d+ enginePid=(\d+)/g)].findLast(
            ([, id]) => id === model,
          )?.[2],
        );
      process.kill(pidOf(first), signal);
      await doomed.ended;
      const error = (doomed.data.at(-2) as { error?: { code: string; type: string; message: string } }).error;
      assert.equal(error?.type, "server_error");
      assert.equal(error?.code, "model_failed");
      assert.match(error?.message ?? "", /engine of model .* ended .*retried/);
      await until(
        () => new RegExp(`engine ended.*killed by ${signal}`).test(server.output()),
        "the log does not say why it died",
      );
      assert.equal(doomed.data.at(-1), "[DONE]");
      const ms = await recoveryMs(server.url, first);
      const loadMs = Number(/model loaded.*loadMs=(\d+)/.exec(server.output())?.[1]);
      assert.ok(ms <= loadMs + 2000, `answered again after ${ms} ms; it had loaded in ${loadMs} ms`);
      await other.ended;
      const finish = other.data.findLast((chunk) => typeof chunk === "object") as {
        choices: { finish_reason: string }[];
        usage: { completion_tokens: number };
      };
      assert.equal(finish.choices[0]?.finish_reason, "length");
      assert.equal(finish.usage.completion_tokens, 150);
    });
  }
});

describe("a server told to stop", () => {
  it("finishes the streams that run, refuses new work with 503, and exits with 0", async () => {
    const { path } = await realModel();
    const server = await startServer(["-m", path, ...flags, "--shutdown-deadline-secs", "300"]);
    const stream = await openStream(server.url, "default", 100);
    while (stream.data.length < 3) await sleep(5);
    const stopped = server.stop();
    await stream.ended;
    assert.equal(stream.data.at(-1), "[DONE]");
    assert.equal((stream.data.at(-2) as { usage?: { completion_tokens: number } }).usage?.completion_tokens, 100);
    assert.deepEqual(await stopped, { code: 0, signal: null });
    await assert.rejects(fetch(`${server.url}/health`));
  });

  it("ends what runs past the deadline with an error, and still exits with 0", async () => {
    const { path } = await realModel();
    const server = await startServer(["-m", path, ...flags, "--shutdown-deadline-secs", "1"]);
    const stream = await openStream(server.url, "default", 2000);
    while (stream.data.length < 3) await sleep(5);
    const start = performance.now();
    const stopped = await server.stop();
    const ms = performance.now() - start;
    await stream.ended;
    assert.equal((stream.data.at(-2) as { error?: { code: string } }).error?.code, "draining");
    assert.equal(stream.data.at(-1), "[DONE]");
    assert.deepEqual(stopped, { code: 0, signal: null });
    assert.ok(ms < 8000, `took ${ms} ms`);
  });

  it("leaves no engine process behind when it is killed itself", async () => {
    const { path } = await realModel();
    const server = await startServer(["-m", path, ...flags]);
    const [engine] = server.enginePids();
    assert.ok(engine && engine !== server.process.pid);
    server.process.kill("SIGKILL");
    for (let i = 0; i < 100; i++) {
      try {
        process.kill(engine, 0);
      } catch {
        return;
      }
      await sleep(50);
    }
    assert.fail(`process ${engine} still runs`);
  });

  it("says what is wrong with a model file and exits with 1", async () => {
    await assert.rejects(startServer(["-m", import.meta.filename]), /ended with code 1[\s\S]*(GGUF|magic)/);
  });
});
