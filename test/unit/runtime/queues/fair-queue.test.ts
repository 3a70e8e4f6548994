import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { FairQueue } from "../../../../runtime/queues/fair-queue.ts";

interface Item {
  readonly client: string;
  readonly number: number;
}

/** Returns a queue of numbered items, and a function that returns its output in the form "a1 b1 …". */
function createQueue() {
  const queue = new FairQueue<Item>();
  const counts = new Map<string, number>();
  const add = (clients: string, hasLimit = true) =>
    [...clients].map((client) => {
      const number = (counts.get(client) ?? 0) + 1;
      counts.set(client, number);
      const item = { client, number };
      queue.add(item, hasLimit);
      return item;
    });
  const take = (count = 1) =>
    Array.from({ length: count }, () => queue.take())
      .map((item) => (item ? `${item.client}${item.number}` : "-"))
      .join(" ");
  return { queue, add, take };
}

describe("the fair queue", () => {
  it("lets clients take turns, and serves the items of each in order", () => {
    const { add, take } = createQueue();
    add("aaaabbc");
    assert.equal(take(8), "a1 b1 a2 c1 b2 a3 a4 -");
  });

  it("gives the next turn to a client that comes while others wait", () => {
    const { add, take } = createQueue();
    add("a".repeat(200));
    take(50);
    add("b");
    assert.equal(take(2), "b1 a51");
  });

  it("never gives newcomers two turns in a row while other clients wait", () => {
    const { add, take } = createQueue();
    add("aaaa");
    take();
    add("bcdefg");
    assert.equal(take(8), "b1 a2 c1 a3 d1 a4 e1 f1");
  });

  it("gives no more turns to a client that sends its requests one after another", () => {
    const { add, take } = createQueue();
    add("aaaaaabbbbbb");
    let turnsOfC = 0;
    for (let i = 0; i < 9; i++) {
      if (turnsOfC === 0 || take().startsWith("c")) {
        turnsOfC++;
        add("c");
      }
    }
    assert.ok(turnsOfC <= 4, `${turnsOfC} of 9`);
  });

  it("puts an item back as the first of its client, and without a limit to the wait", () => {
    const { queue, add, take } = createQueue();
    const [first] = add("aab");
    take();
    queue.putBack(first!);
    assert.deepEqual(queue.oldest, { client: "a", number: 2 });
    assert.equal(take(4), "b1 a1 a2 -");
  });

  it("takes an item out of turn, which counts as its client's turn", () => {
    const { queue, add, take } = createQueue();
    const [, , , first] = add("aaabbc");
    assert.deepEqual(
      [...queue.next()].map(({ client }) => client),
      ["a", "b", "c"],
    );
    queue.takeAhead(first!);
    queue.checkIntegrity();
    assert.equal(take(5), "a1 b2 c1 a2 a3");
    assert.equal(queue.size, 0);
  });

  it("forgets clients whose items were all taken out of turn, though it is never empty", () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const { queue, add } = createQueue();
    add("a");
    const bytesAfter = (clients: number) => {
      for (let i = 0; i < clients; i++) {
        // Names as long as this make a client that is not forgotten visible in the heap.
        const item = { client: `${i}${"x".repeat(1000)}`.toUpperCase(), number: 1 };
        queue.add(item, true);
        queue.takeAhead(item);
      }
      collect();
      return process.memoryUsage().heapUsed;
    };
    const grown = -bytesAfter(100) + bytesAfter(5000);
    assert.ok(grown < 2_000_000, `${grown} bytes`);
    assert.equal(queue.size, 1);
  });

  it("knows the item with a limited wait that has waited longest", () => {
    const { queue, add, take } = createQueue();
    add("a", false);
    const [second, third] = add("ab");
    assert.equal(queue.oldest, second);
    queue.remove(second!);
    assert.equal(queue.oldest, third);
    take(2);
    assert.equal(queue.oldest, undefined);
  });

  it("serves every client within two rounds, whatever is added, removed and put back", () => {
    const operation = fc.record({
      kind: fc.constantFrom("add", "add", "take", "takeAhead", "remove", "putBack"),
      client: fc.constantFrom("a", "b", "c", "d", "e"),
      at: fc.nat(),
    });
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 120 }), (operations) => {
        const { queue, add } = createQueue();
        const inside: Item[] = [];
        const outside: Item[] = [];
        /** Number of turns of other clients since the last turn of each waiting client. */
        const passed = new Map<string, number>();
        for (const { kind, client, at } of operations) {
          if (kind === "add") inside.push(...add(client));
          else if (kind === "remove" && inside.length > 0) queue.remove(inside.splice(at % inside.length, 1)[0]!);
          else if (kind === "putBack" && outside.length > 0) {
            const [item] = outside.splice(at % outside.length, 1);
            queue.putBack(item!);
            inside.push(item!);
          } else if (kind === "take" || kind === "takeAhead") {
            const next = [...queue.next()];
            assert.deepEqual(new Set(next.map((item) => item.client)), new Set(inside.map((item) => item.client)));
            const item = kind === "take" ? queue.take() : next[at % next.length];
            assert.equal(item === undefined, inside.length === 0);
            if (item) {
              if (kind === "takeAhead") queue.takeAhead(item);
              assert.ok(next.includes(item));
              outside.push(...inside.splice(inside.indexOf(item), 1));
              for (const other of new Set(inside.map((one) => one.client))) {
                const isTurn = kind === "take" || other === item.client;
                if (isTurn) passed.set(other, other === item.client ? 0 : (passed.get(other) ?? 0) + 1);
              }
            }
          }
          for (const one of passed.keys()) if (!inside.some((item) => item.client === one)) passed.delete(one);
          queue.checkIntegrity();
          assert.equal(queue.size, inside.length);
          assert.deepEqual(new Set(queue), new Set(inside));
          for (const [one, turns] of passed) assert.ok(turns <= 10, `${one} was passed over ${turns} times`);
        }
      }),
    );
  });
});
