import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { TaskEnded } from "../../runtime/task/task.ts";
import { TaskPool, type TaskPoolOptions } from "../../runtime/task/task-pool.ts";

const quickMs = 150;

function createPool(t: TestContext, changes: Partial<TaskPoolOptions> = {}) {
  const pool = new TaskPool({
    name: "probe",
    module: new URL("../fixtures/actors/probe-tasks.js", import.meta.url),
    init: {},
    quickWorkers: 1,
    slowWorkers: 2,
    quickMs,
    limitMs: 1500,
    loadLimitMs: 1500,
    heapMiB: 64,
    maxQueued: 20,
    maxQueuedName: "probe_queue",
    ...changes,
  });
  t.after(() => pool.close());
  const run = (kind: string, input: unknown = null, client = "a") => pool.run({ kind, input, client });
  return { pool, run };
}

async function timed<T>(work: Promise<T>): Promise<{ value: T; ms: number }> {
  const start = performance.now();
  const value = await work;
  return { value, ms: performance.now() - start };
}

const endedFor = (reason: string, phase: string) => (error: unknown) =>
  error instanceof TaskEnded && error.reason === reason && error.phase === phase;

describe("a task pool", () => {
  it("runs tasks, transfers buffers, and passes errors on", async (t) => {
    const { pool, run } = createPool(t);
    assert.deepEqual(await run("echo", { a: [1, "b"] }), { a: [1, "b"] });
    const bytes = Uint8Array.of(1, 2, 3);
    const answer = await pool.run({ kind: "bytes", input: bytes, client: "a", transfer: [bytes.buffer] });
    assert.deepEqual(answer, Uint8Array.of(2, 3, 4));
    assert.equal(bytes.length, 0, "the input has moved");
    await assert.rejects(run("refuse"), { code: "invalid_value", message: "it is wrong" });
    await assert.rejects(run("mistake"), { code: "internal", message: /server's log/ });
    await assert.rejects(run("deep"), { code: "unsupported", message: /too deeply nested/ });
    assert.equal(await run("echo", 1), 1);
  });

  it("lets a slow task delay others by the quick limit at most", async (t) => {
    const { run } = createPool(t);
    await run("echo");
    await sleep(300); // let the spare worker start
    const slow = run("spin", 900, "slow");
    const waits: number[] = [];
    for (let i = 0; i < 10; i++) waits.push((await timed(run("echo", i, "b"))).ms);
    assert.ok(Math.max(...waits) < 2 * quickMs, `waited ${waits.map(Math.round)} ms`);
    assert.equal(await slow, "spun");
  });

  it("runs a task with a large input beside quick ones from its start", async (t) => {
    const { pool, run } = createPool(t, { quickMs: 60_000 });
    await run("echo");
    await sleep(300); // let the spare worker start
    const input = 500;
    const large = pool.run({ kind: "spin", input, client: "slow", transfer: [new ArrayBuffer(9 * 2 ** 20)] });
    const { ms } = await timed(run("echo", 1, "b"));
    assert.ok(ms < input / 2, `waited ${ms} ms`);
    assert.equal(await large, "spun");
  });

  it("ends a task at the time limit, names its phase, and continues", async (t) => {
    const { run } = createPool(t, { limitMs: 400 });
    const { ms } = await timed(assert.rejects(run("spin", 60_000), endedFor("time", "spinning")));
    assert.ok(ms < 2000, `${ms} ms`);
    assert.equal(await run("echo", 1, "b"), 1);
  });

  it("ends a task that fills its heap, and the process survives", async (t) => {
    const { run } = createPool(t, { limitMs: 20_000 });
    await assert.rejects(run("fill"), endedFor("memory", "filling"));
    assert.equal(await run("echo", 1, "b"), 1);
  });

  it("replaces a worker that crashes", async (t) => {
    const { run } = createPool(t);
    await assert.rejects(run("exit"), endedFor("crash", ""));
    assert.equal(await run("echo", 1, "b"), 1);
  });

  it("makes a client of slow tasks wait for slow tasks, while others stay quick", async (t) => {
    const { run } = createPool(t, { limitMs: 10_000 });
    await run("echo", 0, "b");
    await sleep(2100); // after this time the pool trusts client "b"
    await run("echo", 0, "b");
    const spins = ["x", "x", "x", "y", "z"].map((client) => run("spin", 1000, client));
    await sleep(20);
    const waits: number[] = [];
    for (let i = 0; i < 30; i++) {
      waits.push((await timed(run("echo", i, "b"))).ms);
      await sleep(20);
    }
    // The slow tasks come from three clients that the pool does not trust yet. Each client may occupy the worker for quick tasks
    // once, for at most `quickMs`, as long as there is a spare worker.
    assert.ok(Math.max(...waits) < 4 * quickMs, `waited ${waits.map(Math.round)} ms`);
    assert.deepEqual(
      await Promise.all(spins),
      spins.map(() => "spun"),
    );
  });

  it("trusts a client by the processor time of its tasks, not by wall-clock time", async (t) => {
    if (process.platform !== "linux") return t.skip("the system does not tell the processor time of a thread");
    const { run } = createPool(t);
    await run("echo", 0, "b");
    await sleep(2100); // after this time the pool trusts client "b"
    await run("echo", 0, "b");
    assert.equal(await run("sleep", 0.8 * quickMs, "b"), "slept");
    const stranger = run("spin", 0.9 * quickMs, "stranger");
    const { ms } = await timed(run("echo", 1, "b"));
    assert.ok(ms < quickMs / 2, `waited ${ms} ms`);
    assert.equal(await stranger, "spun");
  });

  it("has two spare workers while there are slow tasks", async (t) => {
    const started = new Int32Array(new SharedArrayBuffer(4));
    const { run } = createPool(t, { init: { started }, limitMs: 10_000 });
    await run("echo");
    await sleep(500);
    assert.equal(started[0], 2);
    const slow = run("spin", 2000, "slow");
    await sleep(1500);
    assert.equal(started[0], 4, "the slow one, a quick one and two spare ones");
    assert.equal(await slow, "spun");
  });

  it("ends a task at the wall-clock limit if it uses no processor time", async (t) => {
    const { run } = createPool(t, { limitMs: 400 });
    const { ms } = await timed(assert.rejects(run("sleep", 60_000), endedFor("time", "")));
    assert.ok(ms > 700 && ms < 1100, `${ms} ms: twice the limit`);
  });

  it("has workers of a lower priority for slow tasks, and others for quick ones", async (t) => {
    const { run } = createPool(t, { slowWorkers: 1 });
    assert.equal(await run("spin", 2 * quickMs, "slow"), "spun");
    const slow = await run("thread", null, "slow");
    assert.equal(await run("thread", null, "slow"), slow, "the worker of slow tasks stays");
    const quick = new Set<unknown>();
    for (let i = 0; i < 10; i++) quick.add(await run("thread", null, "b"));
    assert.ok(!quick.has(slow), "quick tasks have other workers");
    if (process.platform !== "linux") return;
    const [low, usual] = [await run("priority", null, "slow"), await run("priority", null, "b")] as [number, number];
    assert.ok(low > usual, `priorities ${low} and ${usual}`);
  });

  it("makes a client with all slow places give one up for a client with none", async (t) => {
    const { pool, run } = createPool(t, { limitMs: 60_000, heapMiB: 256 });
    await run("echo");
    const leaving = new AbortController();
    const holding = [1, 2].map(() => {
      const { signal } = leaving;
      return assert.rejects(pool.run({ kind: "spin", input: 50_000, client: "holder", signal }), { code: "cancelled" });
    });
    await sleep(5 * quickMs);
    const bytes = Uint8Array.of(1);
    const request = { kind: "spin", input: 2 * quickMs, client: "other", transfer: [bytes.buffer] };
    assert.equal(await pool.run(request), "spun");
    leaving.abort();
    await Promise.all(holding);
  });

  it("keeps a worker whose shared values alone are large", async (t) => {
    const { pool, run } = createPool(t, { heapMiB: 512, loadLimitMs: 10_000 });
    await pool.share("k", "large");
    const threads = new Set<unknown>();
    for (let i = 0; i < 6; i++) {
      threads.add(await run("thread"));
      await sleep(200);
    }
    assert.ok(threads.size <= 2, `${threads.size} workers for six tasks`);
  });

  it("gives clients turns", async (t) => {
    const { run } = createPool(t);
    await run("echo");
    const order: string[] = [];
    const note = (client: string) => run("spin", 5, client).then(() => order.push(client));
    await Promise.all([...["a", "a", "a", "a"].map(note), note("b")]);
    assert.ok(order.indexOf("b") < 3, order.join());
  });

  it("refuses tasks above the queue limit", async (t) => {
    const { run } = createPool(t, { maxQueued: 3 });
    const outcomes = await Promise.allSettled(Array.from({ length: 10 }, () => run("spin", 5)));
    const refused = outcomes.flatMap((one) => (one.status === "rejected" ? [one.reason.code] : []));
    assert.ok(refused.length > 0 && refused.every((code) => code === "queue_full"), refused.join());
  });

  it("makes a client that fills the queue give up places for others", async (t) => {
    const { run } = createPool(t, { maxQueued: 4 });
    await run("echo");
    const many = Promise.allSettled(Array.from({ length: 6 }, () => run("spin", 100, "many")));
    const few = await Promise.allSettled([run("echo", 1, "few"), run("echo", 2, "few")]);
    assert.deepEqual(
      few.map(({ status }) => status),
      ["fulfilled", "fulfilled"],
    );
    const refused = (await many).flatMap((one) => (one.status === "rejected" ? [one.reason.message] : []));
    assert.ok(refused.length >= 2, refused.join());
    assert.match(refused.join(), /a task of another client took its place/);
  });

  it("drops a cancelled task: while it waits, and with its worker once it is slow", async (t) => {
    const { pool, run } = createPool(t, { limitMs: 60_000 });
    await run("echo");
    const running = new AbortController();
    const slow = pool.run({ kind: "spin", input: 50_000, client: "slow", signal: running.signal });
    const waiting = new AbortController();
    const queued = pool.run({ kind: "echo", input: 1, client: "slow", signal: waiting.signal });
    waiting.abort();
    await assert.rejects(queued, { code: "cancelled" });
    await sleep(2 * quickMs);
    running.abort();
    await assert.rejects(slow, { code: "cancelled" });
    assert.equal(await run("echo", 2, "slow"), 2);
  });

  it("shares values with every worker, also with later ones", async (t) => {
    const { pool, run } = createPool(t);
    assert.equal(await pool.share("k", "v"), "loaded v");
    const ask = () => pool.run({ kind: "shared", input: "k", client: "b", needs: "k" });
    assert.equal(await ask(), "v");
    for (let i = 0; i < 4; i++) await assert.rejects(run("exit", null, `c${i}`));
    assert.equal(await ask(), "v");
    pool.unshare("k");
    await assert.rejects(ask(), { code: "peer_gone" });
  });

  it("rejects a shared value that no worker can load, and serves other tasks", async (t) => {
    const { pool, run } = createPool(t);
    await assert.rejects(pool.share("k", "bad"), { code: "model_file_invalid" });
    assert.equal(await run("echo", 1), 1);
  });

  it("drops a value that takes too long to load, and serves other tasks meanwhile", async (t) => {
    const { pool, run } = createPool(t, { limitMs: 1000 });
    await pool.share("good", 1);
    await sleep(300);
    const loading = assert.rejects(pool.share("k", "endless"), endedFor("time", ""));
    const { ms } = await timed(run("echo", 1));
    assert.ok(ms < 500, `${ms} ms`);
    await loading;
    assert.equal(await pool.run({ kind: "shared", input: "good", client: "b", needs: "good" }), 1);
  });

  it("counts the processor time of loads, so that a busy machine fails none", async (t) => {
    if (process.platform !== "linux") return t.skip("the system does not tell the processor time of a thread");
    const { pool, run } = createPool(t, { limitMs: 250, loadLimitMs: 250 });
    assert.equal(await pool.share("k", "waiting"), "loaded waiting");
    assert.equal(await pool.run({ kind: "sleep", input: 700, client: "b", isLoad: true }), "slept");
    await assert.rejects(run("sleep", 700), endedFor("time", ""));
    const { ms } = await timed(
      assert.rejects(pool.run({ kind: "sleep", input: 60_000, client: "b", isLoad: true }), endedFor("time", "")),
    );
    assert.ok(ms > 1400 && ms < 2500, `${ms} ms: six times the limit`);
  });

  it("serves tasks while a worker loads a shared value", async (t) => {
    const { pool, run } = createPool(t, { init: { loadMs: 400 } });
    await pool.share("first", 1);
    await sleep(600);
    const loading = pool.share("second", 2);
    const { ms } = await timed(run("echo", 1));
    assert.ok(ms < 300, `${ms} ms`);
    await loading;
  });

  it("serves tasks that need no shared value while a worker loads the first one", async (t) => {
    const { pool, run } = createPool(t, { loadLimitMs: 5000 });
    await run("echo");
    await sleep(300); // let the spare worker start
    const loading = pool.share("k", "long");
    const { ms } = await timed(run("echo", 1));
    assert.ok(ms < 500, `${ms} ms`);
    await loading;
  });

  it("replaces a worker that loads a shared value for long", async (t) => {
    const { pool, run } = createPool(t, { limitMs: 5000, loadLimitMs: 5000 });
    await pool.share("good", 1);
    await run("echo", 1, "b");
    await sleep(300);
    const loading = pool.share("k", "long");
    await sleep(3 * quickMs);
    const slow = run("spin", 1500, "slow");
    const { ms } = await timed(run("echo", 1, "b"));
    assert.ok(ms < 2 * quickMs, `${ms} ms`);
    await Promise.all([loading, slow]);
  });

  it("refuses a task that finds no file descriptor for a module, and loads the module for the next one", async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-task-pool-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    // Node also reads the package.json of a module, and fails with another error if it cannot.
    const module = join(folder, "module.js");
    writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
    writeFileSync(module, "export const value = 5;");
    const program = fileURLToPath(new URL("../fixtures/actors/importing-pool.js", import.meta.url));
    const child = spawn(process.execPath, [program, module], { stdio: ["pipe", "pipe", "inherit"] });
    t.after(() => child.kill("SIGKILL"));
    const exit = once(child, "exit");
    const next = async () => String(((await once(child.stdout, "data")) as [Buffer])[0]).trim();
    /** Changes the limit of open files of the child. Files that it has open are not affected. */
    const limit = (files: number) =>
      execFileSync("prlimit", ["--pid", String(child.pid), `--nofile=${files}:`], { stdio: "ignore" });
    assert.equal(await next(), "ready");
    limit(3);
    child.stdin.write("import\n");
    assert.match(await next(), /^storage_unavailable: .*file descriptor/);
    limit(1024);
    child.stdin.write("import\n");
    assert.equal(await next(), "5");
    child.stdin.end();
    assert.deepEqual(await exit, [0, null]);
  });

  it("refuses tasks if its workers do not start", async (t) => {
    const module = new URL("../fixtures/actors/no-such-tasks.js", import.meta.url);
    const { run } = createPool(t, { module });
    await assert.rejects(run("echo"), { code: "peer_gone" });
  });

  it("rejects running and waiting tasks when it is closed", async (t) => {
    const { pool, run } = createPool(t);
    const running = run("spin", 5000);
    const waiting = run("echo");
    pool.close();
    await assert.rejects(running, { code: "draining" });
    await assert.rejects(waiting, { code: "draining" });
  });
});
