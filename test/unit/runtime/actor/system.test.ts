import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Behaviour } from "../../../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../../../runtime/actor/deferred-reply.ts";
import { Moved } from "../../../../runtime/actor/moved.ts";
import { ActorSystem } from "../../../../runtime/actor/system.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { portPair } from "../../../fixtures/actors/endpoint-pair.ts";
import { FakeClock, settled } from "../../../fixtures/fakes/fake-clock.ts";

interface Counter {
  add(message: { by: number }): number;
  slowly(message: { by: number }): number;
  break(message: null): null;
}

/** Returns a counter whose method `slowly` ends when the test opens the gate. */
function createCounter() {
  let total = 0;
  let open: () => void = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const behaviour = {
    add: ({ by }: { by: number }) => {
      total += by;
      return total;
    },
    slowly: async ({ by }: { by: number }) => {
      await gate;
      total += by;
      return total;
    },
    break: (): null => {
      throw new TypeError("broken");
    },
  };
  return { behaviour, open };
}

describe("an actor", () => {
  it("handles one message at a time, in order, also if a handler waits", async () => {
    const { behaviour, open } = createCounter();
    const counter = new ActorSystem("here").spawn<Counter>("counter", behaviour);
    const answers = Promise.all([
      counter.ask("add", { by: 1 }),
      counter.ask("slowly", { by: 10 }),
      counter.ask("add", { by: 100 }),
    ]);
    await settled();
    open();
    assert.deepEqual(await answers, [1, 11, 111]);
  });

  it("handles the next message while a deferred reply is pending, and reports the failure of that reply", async () => {
    let open: (total: number) => void = () => {};
    const answer = new Promise<number>((resolve) => {
      open = resolve;
    });
    const counter = new ActorSystem("here").spawn<Counter>("counter", {
      add: ({ by }) => by,
      slowly: () => new DeferredReply(answer),
      break: () => new DeferredReply(Promise.reject(new ServerError("conflict", "not now"))),
    });
    const slow = counter.ask("slowly", { by: 1 });
    assert.equal(await counter.ask("add", { by: 2 }), 2);
    await assert.rejects(counter.ask("break", null), { code: "conflict" });
    open(7);
    assert.equal(await slow, 7);
  });

  it("never runs its handler inside the call that sends it a message", async () => {
    let isHandled = false;
    const note = () => {
      isHandled = true;
      return null;
    };
    const actor = new ActorSystem("here").spawn<{ note(message: null): null }>("noter", { note });
    actor.tell("note", null);
    assert.equal(isHandled, false);
    await settled();
    assert.equal(isHandled, true);
  });

  it("refuses messages over its limit with mailbox_full, and answers the others", async () => {
    const { behaviour, open } = createCounter();
    const counter = new ActorSystem("here").spawn<Counter>("counter", behaviour, { mailboxLimit: 2 });
    const first = counter.ask("slowly", { by: 1 });
    await settled(); // The first call is now being handled, so it is not in the mailbox.
    const waiting = [counter.ask("add", { by: 1 }), counter.ask("add", { by: 1 })];
    await assert.rejects(counter.ask("add", { by: 1 }), {
      code: "mailbox_full",
      message: /"counter" holds its limit of 2/,
    });
    open();
    assert.deepEqual(await Promise.all([first, ...waiting]), [1, 2, 3]);
  });

  it("accepts asks and tells from the peer of an attached endpoint", async () => {
    const { left, right } = portPair();
    const there = new ActorSystem("there");
    there.spawn<Counter>("counter", createCounter().behaviour);
    there.attach(right);
    const counter = new ActorSystem("here").ref<Counter>("counter", left);
    counter.tell("add", { by: 5 });
    assert.equal(await counter.ask("add", { by: 2 }), 7);
    left.close();
    await right.exit;
  });

  it("transfers the buffers of Moved replies, also deferred ones, and does not copy them", async () => {
    interface Bytes {
      take(isLater: boolean): Uint8Array;
    }
    const { left, right } = portPair();
    const there = new ActorSystem("there");
    const made: Uint8Array[] = [];
    const take = (): Moved<Uint8Array> => {
      const bytes = new Uint8Array([1, 2, 3]);
      made.push(bytes);
      return new Moved(bytes, [bytes.buffer]);
    };
    const behaviour: Behaviour<Bytes> = {
      take: (isLater) => (isLater ? new DeferredReply(Promise.resolve(take())) : take()),
    };
    const nearby = there.spawn<Bytes>("bytes", behaviour);
    there.attach(right);
    const bytes = new ActorSystem("here").ref<Bytes>("bytes", left);
    for (const isLater of [false, true]) assert.deepEqual(await bytes.ask("take", isLater), new Uint8Array([1, 2, 3]));
    assert.deepEqual(
      made.map(({ byteLength }) => byteLength),
      [0, 0],
    );
    assert.deepEqual(await nearby.ask("take", false), new Uint8Array([1, 2, 3]));
    left.close();
    await right.exit;
  });

  it("asked over an endpoint that has ended does not keep the endpoint in memory", async () => {
    const here = new ActorSystem("here");
    const askAndClose = async () => {
      const { left, right } = portPair();
      const there = new ActorSystem("there");
      there.spawn<Counter>("counter", createCounter().behaviour);
      there.attach(right);
      await here.ref<Counter>("counter", left).ask("add", { by: 1 });
      right.close();
      await left.exit;
      return new WeakRef(left);
    };
    const link = await askAndClose();
    setFlagsFromString("--expose-gc");
    const collectGarbage = runInNewContext("gc") as () => void;
    for (let i = 0; i < 5 && link.deref() !== undefined; i++) {
      await settled();
      collectGarbage();
    }
    assert.equal(link.deref(), undefined);
  });

  it("has only its own methods: inherited ones cannot be called from outside", async () => {
    const system = new ActorSystem("here");
    const heard: string[] = [];
    system.onError = (_error, at) => heard.push(at);
    const counter = system.spawn<Counter>("counter", createCounter().behaviour);
    for (const method of ["constructor", "toString", "onStop", "nothing"]) {
      await assert.rejects(counter.ask(method as "break", null), { code: "internal", message: /has no method/ });
    }
    assert.equal(heard.length, 4);
  });
});

describe("an ask", () => {
  it("rejects with timeout when the time is over, and a late reply changes nothing", async () => {
    const clock = new FakeClock();
    const { behaviour, open } = createCounter();
    const counter = new ActorSystem("here", { clock }).spawn<Counter>("counter", behaviour);
    const ask = assert.rejects(counter.ask("slowly", { by: 1 }, { timeoutMs: 500 }), {
      code: "timeout",
      message: '"counter" at "here" did not answer slowly within 500 ms',
    });
    await clock.advance(500);
    await ask;
    open();
    await settled();
    assert.equal(await counter.ask("add", { by: 1 }), 2);
    assert.equal(clock.pendingCount, 0);
  });

  it("rejects with internal for a programming error, which the system's onError receives", async () => {
    const system = new ActorSystem("here");
    const heard: unknown[] = [];
    system.onError = (error, at) => heard.push([(error as Error).name, at]);
    const counter = system.spawn<Counter>("counter", createCounter().behaviour);
    await assert.rejects(
      counter.ask("break", null),
      (error) => error instanceof ServerError && error.code === "internal",
    );
    assert.deepEqual(heard, [["TypeError", "counter.break"]]);
  });

  it("with a message that cannot be sent rejects, and the endpoint stays usable", async () => {
    const { left, right } = portPair();
    const there = new ActorSystem("there");
    there.spawn<Counter>("counter", createCounter().behaviour);
    there.attach(right);
    const counter = new ActorSystem("here").ref<Counter>("counter", left);
    await assert.rejects(counter.ask("add", { by: (() => 1) as unknown as number }), { code: "internal" });
    assert.equal(await counter.ask("add", { by: 3 }), 3);
    left.close();
    await right.exit;
  });

  it("is refused when 4096 others wait for the same peer", async () => {
    const { left, right } = portPair();
    const counter = new ActorSystem("here").ref<Counter>("counter", left); // the right end never replies
    const asks = Array.from({ length: 4096 }, () => counter.ask("add", { by: 1 }));
    await assert.rejects(counter.ask("add", { by: 1 }), { code: "mailbox_full" });
    right.close();
    const results = await Promise.allSettled(asks);
    assert.ok(results.every((result) => result.status === "rejected" && result.reason.code === "peer_gone"));
  });
});

describe("stopping a system", () => {
  it("drains the mailboxes, refuses new messages with draining, and runs onStop last", async () => {
    const system = new ActorSystem("here");
    const { behaviour, open } = createCounter();
    const order: string[] = [];
    const counter = system.spawn<Counter>("counter", { ...behaviour, onStop: () => void order.push("onStop") });
    const waiting = counter.ask("slowly", { by: 1 }).then((total) => order.push(`answered ${total}`));
    const stopped = system.stop();
    await assert.rejects(counter.ask("add", { by: 1 }), { code: "draining" });
    open();
    await Promise.all([waiting, stopped]);
    assert.deepEqual(order, ["answered 1", "onStop"]);
    await assert.rejects(counter.ask("add", { by: 1 }), { code: "draining" });
  });

  it("drops tells that arrive while it stops, or later, without an error", async () => {
    const system = new ActorSystem("here");
    const complaints: unknown[] = [];
    system.onError = (error) => complaints.push(error);
    const { behaviour, open } = createCounter();
    const counter = system.spawn<Counter>("counter", behaviour);
    const waiting = counter.ask("slowly", { by: 1 });
    const stopped = system.stop();
    counter.tell("add", { by: 1 });
    open();
    await Promise.all([waiting, stopped]);
    counter.tell("add", { by: 1 });
    await settled();
    assert.deepEqual(complaints, []);
  });

  it("gives up on a handler that does not return when the drain time is over", async () => {
    const clock = new FakeClock();
    const system = new ActorSystem("here", { clock, drainMs: 1000 });
    const { behaviour } = createCounter();
    const counter = system.spawn<Counter>("counter", behaviour);
    void counter.ask("slowly", { by: 1 }).catch(() => {});
    await settled();
    const behind = assert.rejects(counter.ask("add", { by: 1 }), { code: "draining", message: /before it handled/ });
    const stopped = system.stop();
    await clock.advance(1000);
    await Promise.all([stopped, behind]);
  });
});
