// Places (worker threads and child processes). The first tests run for both kinds; the later tests are for one kind only.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { ActorSystem } from "../../runtime/actor/system.ts";
import { ServerError } from "../../runtime/errors.ts";
import { openEndpoint, ticketTransfer } from "../../runtime/thread/dial.ts";
import { type Place, type PlaceKind, type PlaceOptions, spawnPlace } from "../../runtime/thread/place.ts";
import type { Probe, ProbeInit, ProbeReady } from "../fixtures/actors/probe-place.ts";

const fixture = (name: string) => new URL(`../fixtures/actors/${name}.js`, import.meta.url);
const kinds: readonly PlaceKind[] = ["thread", "process"];

function spawnProbe(kind: PlaceKind, options: Partial<PlaceOptions<ProbeInit>> = {}): Promise<Place<ProbeReady>> {
  return spawnPlace({
    name: "den",
    module: fixture("probe-place"),
    init: { greeting: "hello" },
    kind,
    startTimeoutMs: 10_000,
    ...options,
  });
}

const system = new ActorSystem("test");
const probeOf = (place: Place<ProbeReady>) => system.ref<Probe>("probe", place.endpoint);

const withCode = (code: string, text: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ServerError);
  assert.equal(error.code, code);
  assert.match(error.message, text);
  return true;
};

for (const kind of kinds) {
  describe(`a place on a ${kind}`, () => {
    let place: Place<ProbeReady>;
    const progress: unknown[] = [];
    before(async () => {
      place = await spawnProbe(kind, { onProgress: (value) => progress.push(value) });
    });
    after(() => place.stop(2000));

    it("passes its init to start, the result of start to the spawner, and progress", () => {
      assert.equal(place.ready.greeting, "hello");
      assert.equal(place.ready.pid === process.pid, kind === "thread");
      assert.equal(place.pid, kind === "thread" ? null : place.ready.pid);
      assert.equal(progress[0], "spawning the probe");
    });

    it("answers an ask with the result of the handler", async () => {
      const value = { text: "größe", list: [1, 2.5, -3], nested: { on: true, none: null } };
      assert.deepEqual(await probeOf(place).ask("echo", value), value);
    });

    it("sends typed arrays both ways with their type and content, without the rest of their buffers", async () => {
      const frame = {
        ids: new Int32Array([1, -2, 2 ** 31 - 1]),
        logprobs: new Float32Array(new Float32Array([9, 0.5, -1.25, 9]).buffer, 4, 2),
        bytes: new Uint8Array([0, 255]),
      };
      const probe = probeOf(place);
      assert.deepEqual(await probe.ask("classes", Object.values(frame)), ["Int32Array", "Float32Array", "Uint8Array"]);
      assert.deepEqual(await probe.ask("echo", frame), frame);
    });

    it("sends a message of many megabytes", async () => {
      const bytes = new Uint8Array(20_000_000).map((_, i) => i % 251);
      assert.deepEqual(await probeOf(place).ask("echo", bytes), bytes);
    });

    it("keeps the order of tells, and of an ask after them", async () => {
      const probe = probeOf(place);
      for (let i = 0; i < 500; i++) probe.tell("note", i);
      assert.deepEqual(
        await probe.ask("notes", null),
        Array.from({ length: 500 }, (_, i) => i),
      );
    });

    it("lets a behaviour's ServerError arrive with code, message and param", async () => {
      const record = { code: "context_length_exceeded", message: "too long", param: "messages" } as const;
      await assert.rejects(probeOf(place).ask("fail", record), { name: "ServerError", ...record });
    });

    it("answers a programming error with internal and reports it to the place's onError", async () => {
      await assert.rejects(probeOf(place).ask("bug", null), withCode("internal", /programmer's mistake/));
      assert.ok(progress.includes("onError: a programmer's mistake"));
    });

    it("reports a failed tell to the place's onError", async () => {
      const probe = probeOf(place);
      probe.tell("fail", { code: "conflict", message: "nobody waits for this" });
      await probe.ask("echo", null);
      assert.ok(progress.includes("onError: nobody waits for this"));
    });

    it("refuses a message for an actor it does not have", async () => {
      const nobody = system.ref<Probe>("nobody", place.endpoint);
      await assert.rejects(nobody.ask("echo", 1), withCode("peer_gone", /no actor "nobody"/));
    });

    it("can be dialled by a third place, which then sends messages directly", async () => {
      const third = await spawnProbe("thread", { name: "third" });
      const ticket = await place.dial();
      const probe = probeOf(third);
      await probe.ask("connect", ticket, { transfer: ticketTransfer(ticket) });
      assert.equal(await probe.ask("relay", "by the direct link"), "by the direct link");
      await third.stop(2000);
      assert.equal(await probeOf(place).ask("echo", "still here"), "still here");
    });
  });

  describe(`the end of a place on a ${kind}`, () => {
    it("is orderly after stop: hooks run, and dialled peers see an orderly exit too", async () => {
      const progress: unknown[] = [];
      const place = await spawnProbe(kind, { onProgress: (value) => progress.push(value) });
      const direct = await openEndpoint(await place.dial());
      await system.ref<Probe>("probe", direct).ask("echo", 1);
      const exit = await place.stop(2000);
      assert.deepEqual(exit, { reason: "stopped", code: 0, signal: null, orderly: true });
      assert.ok(progress.includes("the hook ran"));
      assert.equal((await direct.exit).orderly, true);
      assert.equal(await place.exit, exit);
    });

    it("comes by force when a hook hangs past the deadline", async () => {
      const place = await spawnPlace<null, null>({
        name: "stuck",
        module: fixture("stuck-place"),
        init: null,
        kind,
        startTimeoutMs: 10_000,
      });
      const begun = performance.now();
      const exit = await place.stop(200);
      assert.ok(performance.now() - begun < 1500);
      assert.equal(exit.orderly, false);
      assert.match(exit.reason, /did not stop within 200 ms/);
    });

    it("comes by force when its event loop is blocked", async () => {
      const place = await spawnProbe(kind);
      probeOf(place).tell("die", "block");
      assert.match((await place.stop(200)).reason, /did not stop within 200 ms/);
    });

    it("rejects pending and later asks with peer_gone, at once", async () => {
      const place = await spawnProbe(kind);
      const direct = await openEndpoint(await place.dial());
      const probe = probeOf(place);
      const dialler = system.ref<Probe>("probe", direct);
      await dialler.ask("echo", 1);
      const underWay = assert.rejects(probe.ask("never", null), withCode("peer_gone", /"den" is gone \(killed by its/));
      const dialled = assert.rejects(dialler.ask("echo", null), withCode("peer_gone", /"den" is gone/));
      const begun = performance.now();
      place.kill();
      await Promise.all([underWay, dialled]);
      await assert.rejects(probe.ask("echo", 1), withCode("peer_gone", /is gone/));
      assert.ok(performance.now() - begun < 500);
    });

    it("ends connections that were dialled when it no longer listened, and refuses later ones", async () => {
      const place = await spawnProbe(kind);
      const ticket = await place.dial();
      probeOf(place).tell("die", "block");
      const dialler = system.ref<Probe>("probe", await openEndpoint(ticket));
      const ask = assert.rejects(dialler.ask("echo", 1), withCode("peer_gone", /"den" is gone/));
      await new Promise((resolve) => setTimeout(resolve, 50));
      place.kill();
      await ask;
      await place.exit;
      await assert.rejects(place.dial().then(openEndpoint), withCode("peer_gone", /"den"/));
    });

    it("names the uncaught exception", async () => {
      const place = await spawnProbe(kind, { onOutput: () => {} });
      const ask = assert.rejects(probeOf(place).ask("die", "throw"), withCode("peer_gone", /out of luck/));
      assert.deepEqual(await place.exit, { reason: "crashed: out of luck", code: 1, signal: null, orderly: false });
      await ask;
    });

    it("is a crash when the place calls process.exit by itself", async () => {
      const place = await spawnProbe(kind);
      const ask = assert.rejects(probeOf(place).ask("die", "exit"), withCode("peer_gone", /exited with code 7/));
      assert.deepEqual(await place.exit, { reason: "exited with code 7", code: 7, signal: null, orderly: false });
      await ask;
    });

    it("comes when a watched event loop blocks for too long, and not before", async () => {
      const place = await spawnProbe(kind, { answersWithinMs: 500 });
      await new Promise((resolve) => setTimeout(resolve, 1500));
      assert.equal(await probeOf(place).ask("echo", "alive"), "alive");
      probeOf(place).tell("die", "block");
      const { reason, orderly } = await place.exit;
      assert.equal(orderly, false);
      assert.match(reason, /did not answer for 500 ms/);
    });
  });

  describe(`the start of a place on a ${kind}`, () => {
    const spawnFailing = (init: string, options: { startTimeoutMs?: number; signal?: AbortSignal } = {}) =>
      spawnPlace({
        name: "lemon",
        module: fixture("failing-place"),
        init,
        kind,
        startTimeoutMs: 10_000,
        onOutput: () => {},
        ...options,
      });

    it("rejects with the ServerError that start threw", async () => {
      const expected = {
        name: "ServerError",
        code: "model_file_invalid",
        param: "model",
        message: "expected a GGUF file",
      };
      await assert.rejects(spawnFailing("error"), expected);
    });

    it("rejects with internal when start throws anything else", async () => {
      await assert.rejects(spawnFailing("bug"), withCode("internal", /undefined is not a model/));
    });

    it("rejects with peer_gone when the place dies", async () => {
      await assert.rejects(
        spawnFailing("exit"),
        withCode("peer_gone", /"lemon" died while it started: exited with code 3/),
      );
    });

    it("rejects with timeout when start hangs", async () => {
      await assert.rejects(spawnFailing("hang", { startTimeoutMs: 300 }), withCode("timeout", /within 300 ms/));
    });

    it("rejects with cancelled when its signal aborts", async () => {
      await assert.rejects(
        spawnFailing("hang", { signal: AbortSignal.timeout(100) }),
        withCode("cancelled", /start of "lemon" was cancelled/),
      );
    });
  });
}

describe("a child process", () => {
  for (const [how, signal] of [
    ["abort", "SIGABRT"],
    ["kill", "SIGKILL"],
  ] as const) {
    it(`killed by ${signal} during an ask reports it, and other places are not affected`, async () => {
      const [place, other] = await Promise.all([spawnProbe("process", { onOutput: () => {} }), spawnProbe("process")]);
      const ask = assert.rejects(
        probeOf(place).ask("die", how),
        withCode("peer_gone", new RegExp(`killed by ${signal}`)),
      );
      assert.deepEqual(await place.exit, { reason: `killed by ${signal}`, code: null, signal, orderly: false });
      await ask;
      assert.equal(await probeOf(other).ask("echo", 1), 1);
      await other.stop(2000);
    });
  }

  it("ignores SIGINT and SIGTERM: its spawner stops it", async () => {
    const place = await spawnProbe("process");
    process.kill(place.ready.pid, "SIGINT");
    process.kill(place.ready.pid, "SIGTERM");
    assert.equal(await probeOf(place).ask("echo", "alive"), "alive");
    assert.equal((await place.stop(2000)).orderly, true);
  });

  it("ends when its spawner is killed, although its event loop is never empty", async () => {
    const spawner = spawn(process.execPath, [fileURLToPath(fixture("orphaning-spawner"))], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    const [pid] = (await once(spawner.stdout, "data")).map(Number);
    assert.ok(isRunning(pid));
    spawner.kill("SIGKILL");
    while (isRunning(pid)) await new Promise((resolve) => setTimeout(resolve, 20));
  });

  it("removes the folder of its socket when it ends", async () => {
    const place = await spawnProbe("process");
    const ticket = await place.dial();
    assert.ok(ticket.kind === "process");
    assert.ok(existsSync(ticket.path));
    place.kill();
    await place.exit;
    while (existsSync(dirname(ticket.path))) await new Promise((resolve) => setTimeout(resolve, 5));
    await assert.rejects(openEndpoint(ticket), withCode("peer_gone", /"den" does not answer/));
  });

  it("does not inherit secrets, and gets its own variables", async () => {
    process.env.TROUPE_TEST_API_KEY = "secret";
    const lines: string[] = [];
    const place = await spawnPlace<null, { secret: string | null; meant: string | null }>({
      name: "den",
      module: new URL(`data:text/javascript,${encodeURIComponent(environmentPlace)}`),
      init: null,
      kind: "process",
      startTimeoutMs: 10_000,
      environment: { TROUPE_TEST_MEANT: "yes" },
      onOutput: (line) => lines.push(line),
    });
    assert.deepEqual(place.ready, { secret: null, meant: "yes" });
    await place.stop(2000);
    assert.deepEqual(lines.sort(), ["printed to stderr", "printed to stdout"]);
  });
});

/** Returns whether a process runs. A zombie process does not count. */
function isRunning(pid: number | undefined): boolean {
  const { stdout } = spawnSync("ps", ["-o", "stat=", "-p", String(pid)], { encoding: "utf8" });
  return /^[^Z\s]/.test(stdout);
}

const environmentPlace = `export async function start() {
  console.log("printed to stdout");
  console.error("printed to stderr");
  const { TROUPE_TEST_API_KEY: secret = null, TROUPE_TEST_MEANT: meant = null } = process.env;
  return { secret, meant };
}`;
