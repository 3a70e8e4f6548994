// Effects on clients when the server is stopped or killed.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { realModel } from "../fixtures/models/models.ts";
import { startServer } from "../fixtures/serve.ts";
import { openStream } from "../fixtures/streams.ts";

// The engine runs in a separate process, so that a test can kill it.
const flags = ["--max-model-len", "2048", "--max-seqs", "4", "--isolate", "true"];

describe("a server that is being stopped", () => {
  it("finishes running streams, rejects new requests with 503, and exits with 0", async () => {
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

  it("ends responses that exceed the deadline with an error, and still exits with 0", async () => {
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

  it("reports what is wrong with a model file and exits with 1", async () => {
    await assert.rejects(startServer(["-m", import.meta.filename]), /ended with code 1[\s\S]*(GGUF|magic)/);
  });
});
