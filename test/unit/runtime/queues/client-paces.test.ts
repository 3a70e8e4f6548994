import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { ClientPaces } from "../../../../runtime/queues/client-paces.ts";
import { FairQueue } from "../../../../runtime/queues/fair-queue.ts";

const quickMs = 250;

/** Returns client paces, which classify clients by the durations of their recent tasks, on a clock that the test advances. */
function pacesAt(t: TestContext) {
  let nowMs = 1_000_000;
  t.mock.method(performance, "now", () => nowMs);
  const paces = new ClientPaces(quickMs);
  const queue = new FairQueue<{ readonly client: string }>();
  return {
    paces,
    pass(ms: number): void {
      nowMs += ms;
    },
    short(...clients: readonly string[]): void {
      for (const client of clients) paces.quick(client, 5);
    },
    /** Queues one item per client. Returns the client whose item may overtake the others; undefined if none may. */
    taken(clients: readonly string[], onlyLongTrusted = false): string | undefined {
      const items = clients.map((client) => ({ client }));
      for (const item of items) queue.add(item, false);
      const taken = paces.takeTrusted(queue, onlyLongTrusted);
      for (const item of items) queue.remove(item);
      return taken?.client;
    },
  };
}

describe("the pace of a client", () => {
  it("is trusted when its tasks have been short for 2 s, and again 10 s after a longer one", (t) => {
    const { paces, pass, short } = pacesAt(t);
    short("a");
    assert.equal(paces.isTrusted("a"), false);
    pass(2000);
    short("a");
    assert.ok(paces.isTrusted("a"));
    paces.quick("a", quickMs / 2);
    assert.equal(paces.isTrusted("a"), false);
    pass(9000);
    short("a");
    assert.equal(paces.isTrusted("a"), false);
    pass(1000);
    short("a");
    assert.ok(paces.isTrusted("a"));
  });

  it("is slow for a minute after a slow task, and not trusted as long", (t) => {
    const { paces, pass, short } = pacesAt(t);
    paces.slow("a");
    for (let second = 0; second < 59; second++) {
      pass(1000);
      short("a");
    }
    assert.deepEqual([paces.isSlow("a"), paces.isTrusted("a")], [true, false]);
    pass(1000);
    short("a");
    assert.deepEqual([paces.isSlow("a"), paces.isTrusted("a")], [false, true]);
  });
});

describe("an item taken out of turn", () => {
  it("belongs to a trusted client, regardless of the others", (t) => {
    const { pass, short, taken } = pacesAt(t);
    short("old");
    pass(2000);
    short("old");
    assert.equal(taken(["new", "old"]), "old");
    assert.equal(taken(["new"]), undefined);
  });

  it("belongs, if only one worker is free, to a client trusted at least half as long as the longest active one", (t) => {
    const { pass, short, taken } = pacesAt(t);
    short("old");
    pass(60_000);
    short("old", "middle", "young");
    pass(5000);
    short("old", "young");
    assert.equal(taken(["young", "old"], true), "old");
    assert.equal(taken(["young"], true), undefined);
    assert.equal(taken(["young"]), "young");
    pass(60_000);
    short("old", "young");
    assert.equal(taken(["young"], true), "young", "65 of 125 s");
  });

  it("belongs to any trusted client if those trusted for longer have gone", (t) => {
    const { pass, short, taken } = pacesAt(t);
    short("old");
    pass(60_000);
    short("old", "young");
    pass(10_000);
    short("young");
    assert.equal(taken(["young"], true), "young");
  });
});
