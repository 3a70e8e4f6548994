import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { Gate } from "../../../../runtime/queues/gate.ts";
import { ClientGate } from "../../../../runtime/queues/keyed-gates.ts";

describe("a gate", () => {
  it("runs as many at once as it has places, one client's in order, and clients in turns", async () => {
    const gate = new Gate(2);
    const begun: string[] = [];
    let running = 0;
    let most = 0;
    const pass = (name: string, client: string): Promise<void> =>
      gate.pass(async () => {
        begun.push(name);
        most = Math.max(most, ++running);
        await nextTurn();
        running--;
      }, client);
    const own = Array.from({ length: 8 }, (_, i) => `a${i}`);
    await Promise.all([...own.map((name) => pass(name, "a")), pass("b1", "b"), pass("c1", "c")]);
    assert.equal(most, 2);
    assert.deepEqual(begun.slice(0, 2), ["a0", "a1"]);
    assert.deepEqual(
      begun.filter((name) => name.startsWith("a")),
      own,
    );
    assert.ok(begun.indexOf("b1") < begun.indexOf("a5") && begun.indexOf("c1") < begun.indexOf("a5"), String(begun));
  });

  it("lets a run that waits be given up, and passes its turn to the next one", async () => {
    const gate = new Gate(1);
    const begun: string[] = [];
    const [stop, late] = [new AbortController(), new AbortController()];
    let end = () => {};
    const running = gate.pass(() => new Promise<void>((resolve) => (end = resolve)));
    const given = gate.pass(async () => void begun.push("given up"), "", stop.signal);
    const next = gate.pass(async () => void begun.push("next"), "", late.signal);
    stop.abort(new Error("given up"));
    await assert.rejects(given, /given up/);
    end();
    await Promise.all([running, next]);
    late.abort();
    assert.deepEqual(begun, ["next"]);
    await assert.rejects(
      gate.pass(async () => {}, "", stop.signal),
      /given up/,
    );
    assert.equal(await gate.pass(async () => "again"), "again");
  });

  it("passes the place of a failed run to the next one", async () => {
    const gate = new Gate(1);
    const failing = gate.pass(() => Promise.reject(new Error("no")));
    const next = gate.pass(async () => "yes");
    await assert.rejects(failing, /no/);
    assert.equal(await next, "yes");
    assert.equal(await gate.pass(async () => "again"), "again");
  });
});

describe("a client gate", () => {
  it("lets another client pass while one has as many runs as it may have", async () => {
    const gate = new ClientGate(4);
    const begun: string[] = [];
    let end = () => {};
    const ended = new Promise<void>((resolve) => (end = resolve));
    const pass = (name: string): Promise<void> =>
      gate.pass(async () => {
        begun.push(name);
        await ended;
      }, name[0] ?? "");
    const runs = ["a0", "a1", "a2", "a3", "a4", "b0"].map(pass);
    await nextTurn();
    assert.deepEqual(begun, ["a0", "a1", "b0"]);
    end();
    await Promise.all(runs);
    assert.equal(begun.length, 6);
  });

  it("lets a run that waits for its client's share be given up", async () => {
    const gate = new ClientGate(2);
    let end = () => {};
    const running = gate.pass(() => new Promise<void>((resolve) => (end = resolve)), "a");
    const stop = new AbortController();
    const waiting = gate.pass(() => assert.fail("it was given up"), "a", stop.signal);
    stop.abort(new Error("given up"));
    await assert.rejects(waiting, /given up/);
    end();
    await running;
  });
});
