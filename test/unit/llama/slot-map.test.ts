import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { SlotMap } from "../../../engines/llama/kv/slot-map.ts";

describe("the map from slots to native sequence ids", () => {
  it("gives a slot the lowest free id and keeps it", () => {
    const map = new SlotMap(4);
    assert.deepEqual([map.acquire(3), map.acquire(0), map.acquire(3)], [0, 1, 0]);
    assert.equal(map.release(3), 0);
    assert.equal(map.acquire(2), 0);
    assert.deepEqual([map.idOf(3), map.slotOf(0), map.slotOf(1)], [-1, 2, 0]);
  });

  it("requires no move while ids are dense", () => {
    const map = new SlotMap(4);
    for (const slot of [0, 1, 2, 3]) map.acquire(slot);
    assert.equal(map.compaction(), null);
    map.release(3);
    assert.equal(map.compaction(), null);
  });

  it("closes the lowest gap with the highest sequence until the ids are dense", () => {
    const map = new SlotMap(6);
    for (const slot of [0, 1, 2, 3, 4, 5]) map.acquire(slot);
    for (const slot of [0, 2, 5]) map.release(slot);
    const moves: number[][] = [];
    for (let move = map.compaction(); move; move = map.compaction()) {
      moves.push([move.slot, move.from, move.to]);
      map.moved(move);
    }
    assert.deepEqual(moves, [
      [4, 4, 0],
      [3, 3, 2],
    ]);
    assert.deepEqual([1, 3, 4].map((slot) => map.idOf(slot)).sort(), [0, 1, 2]);
  });

  it("rejects a slot too many as a programming error", () => {
    const map = new SlotMap(1);
    map.acquire(0);
    assert.throws(() => map.acquire(1), /no native sequence id is free/);
  });
});
