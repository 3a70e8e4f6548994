// Two models of one server, started by the real command. The engine of one model dies repeatedly, or the model is unloaded and
// reloaded. The other model must not be affected.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { realModel } from "../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../fixtures/serve.ts";
import { ask, expectWhole, openStream, post, recoveryMs, until } from "../fixtures/streams.ts";

/** Number of repetitions of each kind of engine crash and of model change. */
const count = Number(process.env.LIFECYCLE_COUNT ?? 3);

/**
 * Number of deaths before the test reloads the model. The deaths come within the five seconds in which restarts count as
 * consecutive, and the supervisor waits longer before each consecutive restart.
 */
const deathsInARow = 2;

// Each engine runs in a separate process, so that the test can kill it.
const flags = ["--max-model-len", "2048", "--max-seqs", "8", "--isolate", "true"];

describe("a server with two models", () => {
  let server: RunningServer;
  let folder = "";
  let first = "";
  let second = "";

  before(async () => {
    const { path } = await realModel();
    folder = mkdtempSync(join(tmpdir(), "troupe-two-"));
    first = join(folder, "first.gguf");
    second = join(folder, "second.gguf");
    for (const model of [first, second]) copyFileSync(path, model);
    server = await startServer(["-m", first, "-m", second, ...flags]);
  });

  after(async () => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  async function manage(action: "reload" | "unload" | "status", model: string) {
    const response = await post(`${server.url}/v1/models/${action}`, { model_id: model });
    return { code: response.status, body: (await response.json()) as { model_id: string; status: string } };
  }

  /** Returns the process id and the load time in ms of each engine process that has loaded this model so far. */
  function placesOf(model: string): { pid: number; loadMs: number }[] {
    const loaded = /model loaded.*model=(\S+) loadMs=(\d+) enginePid=(\d+)/g;
    return [...server.output().matchAll(loaded)]
      .filter(([, id]) => id === model)
      .map(([, , loadMs, pid]) => ({ pid: Number(pid), loadMs: Number(loadMs) }));
  }

  /** Kills the engine of a model during a stream. Asserts that the other model keeps responding. */
  async function die(model: string, other: string, signal: NodeJS.Signals): Promise<void> {
    const doomed = await openStream(server.url, model, 2000);
    const unharmed = await openStream(server.url, other, 150);
    while (doomed.data.length < 5 || unharmed.data.length < 5) await sleep(5);
    const { pid } = placesOf(model).at(-1) ?? { pid: 0 };
    process.kill(pid, signal);
    await doomed.ended;
    const { error } = doomed.data.at(-2) as { error?: { code: string; type: string; message: string } };
    assert.deepEqual([error?.type, error?.code], ["server_error", "model_failed"]);
    assert.match(error?.message ?? "", /engine of model .* ended .*retried/);
    assert.equal(doomed.data.at(-1), "[DONE]");
    const ms = await recoveryMs(server.url, model);
    const loadMs = placesOf(model).at(-1)?.loadMs ?? 0;
    assert.ok(ms <= loadMs + 2000, `answered again after ${ms} ms; it had loaded in ${loadMs} ms`);
    await expectWhole(unharmed, 150);
  }

  const deaths = [
    { signal: "SIGKILL", whose: "the first" },
    { signal: "SIGABRT", whose: "the second" },
  ] as const;

  for (const { signal, whose } of deaths) {
    it(`ends the streams of ${whose} with one retryable error after ${signal}, and restarts it soon`, async () => {
      const [model, other] = whose === "the first" ? [first, second] : [second, first];
      for (let i = 0; i < count; i++) {
        await die(model, other, signal);
        if (i % deathsInARow === deathsInARow - 1) assert.equal((await manage("reload", model)).body.status, "loaded");
      }
      const logged = new RegExp(`engine ended.*killed by ${signal}`);
      await until(() => logged.test(server.output()), "the log does not say why it died");
    });
  }

  it("cuts no stream and loses no request when a model is unloaded and reloaded", async () => {
    for (let i = 0; i < count; i++) {
      const streams = await Promise.all([first, first, second].map((model) => openStream(server.url, model, 24)));
      const unloaded = manage("unload", first);
      await sleep(30);
      const late = openStream(server.url, first, 4);
      assert.deepEqual((await unloaded).body, { model_id: first, status: "unloaded" });
      await Promise.all(streams.map((stream) => expectWhole(stream, 24)));
      await expectWhole(await late, 4);
      assert.equal((await manage("status", first)).body.status, "loaded");
      const again = await Promise.all([first, second].map((model) => openStream(server.url, model, 12)));
      assert.deepEqual(await manage("reload", first), { code: 200, body: { model_id: first, status: "loaded" } });
      await Promise.all(again.map((stream) => expectWhole(stream, 12)));
    }
  });

  it("loads an unloaded model for the request that names it", async () => {
    await manage("unload", first);
    await manage("unload", first);
    const places = placesOf(first).length;
    assert.equal((await manage("status", first)).body.status, "unloaded");
    assert.equal(await ask(server.url, first), 200);
    assert.equal(placesOf(first).length, places + 1);
  });
});
