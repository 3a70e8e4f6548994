// KV cache of the llama engine: storing and freeing the KV of sequences. The same checks run for both memory layouts, on a
// generated model. A sequence's logits must not depend on how its tokens were fed or copied into the cache.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Batch } from "../../../engines/batch.ts";
import type { LoadedModel, ModelSpec, SavedKv } from "../../../engines/engine.ts";
import { llamaEngine } from "../../../engines/llama/engine.ts";
import { specOf, tinyModel } from "../../fixtures/models/models.ts";

interface Feed {
  readonly slot: number;
  readonly from: number;
  readonly to: number;
  /** Number of the text that the tokens come from. Sequences with the same text have a common prefix. */
  readonly text?: number;
  readonly logits?: number;
}

const textTokens = 512;

function textOf(text: number): Int32Array {
  return Int32Array.from({ length: textTokens }, (_, i) => 3 + ((i * i * 7 + i * (text + 1) * 31 + text) % 500));
}

/** Feeds rows in one step. Returns for each row the logits of its last tokens; by default only of the last one. */
function feed(model: LoadedModel, ...rows: readonly Feed[]): number[][][] {
  const { vocabSize } = model.card;
  const batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
  for (const { slot, from, to, text = 0, logits = 1 } of rows) {
    assert.ok(model.kv.reserve(slot, to), `room for ${to} tokens of slot ${slot}`);
    batch.addRow(slot, textOf(text), from, to, logits, 0);
  }
  const output = model.step(batch);
  return rows.map(({ logits = 1 }, row) =>
    Array.from({ length: logits }, (_, i) => {
      const at = (output.logitsRow[row]! + i) * vocabSize;
      return [...output.logits.subarray(at, at + vocabSize)];
    }),
  );
}

/** Returns the logits of the token before `to`, computed in an empty slot with 32 tokens per step. */
function afresh(model: LoadedModel, to: number, text = 0): number[] {
  const slot = model.capacity.maxSequences - 1;
  let logits: number[] = [];
  for (let from = 0; from < to; from += 32) {
    logits = feed(model, { slot, from, to: Math.min(from + 32, to), text })[0]![0]!;
  }
  model.kv.release(slot);
  return logits;
}

/** Feeds the tokens before `to` to a slot, 32 per step. */
function fill(model: LoadedModel, slot: number, to: number, text = 0): void {
  for (let from = 0; from < to; from += 32) feed(model, { slot, from, to: Math.min(from + 32, to), text });
}

/**
 * Maximum difference of logits that are considered equal. A different summation order changes only the last bits,
 * whereas logits of different texts differ by several units.
 */
const tolerance = 1e-3;

function assertSame(actual: readonly number[] | undefined, expected: readonly number[]): void {
  assert.equal(actual?.length, expected.length);
  const distance = expected.reduce((most, value, i) => Math.max(most, Math.abs(value - actual![i]!)), 0);
  assert.ok(distance < tolerance, `logits differ by ${distance}`);
}

function saved(model: LoadedModel, slot: number): SavedKv {
  const copy = model.kv.save(slot);
  assert.ok(copy, "room for a copy");
  return copy;
}

const loadTiny = async (changes: Partial<ModelSpec> = {}) =>
  llamaEngine.load(specOf(await tinyModel(), { threads: 1, maxModelLength: 256, ...changes }), () => {});

for (const pagedKv of [false, true]) {
  describe(`the KV cache of the llama engine, ${pagedKv ? "in one pool" : "in streams"}`, () => {
    let model: LoadedModel;
    before(async () => {
      model = await loadTiny({ pagedKv });
    });
    after(() => model.dispose());

    it("gives the same logits for several tokens of a row as for one token at a time", () => {
      fill(model, 0, 40);
      const [several] = feed(model, { slot: 0, from: 40, to: 46, logits: 6 });
      model.kv.release(0);
      fill(model, 0, 40);
      const single = [40, 41, 42, 43, 44, 45].map((from) => feed(model, { slot: 0, from, to: from + 1 })[0]![0]!);
      for (const [i, logits] of single.entries()) assertSame(several![i], logits);
      model.kv.release(0);
    });

    it("saves bytes that can be restored, without drafted tokens that were not accepted", () => {
      fill(model, 0, 40);
      feed(model, { slot: 0, from: 40, to: 46, logits: 6 });
      const copy = model.kv.save(0, 43);
      assert.ok(copy);
      const bytes = model.kv.export(copy);
      model.kv.drop(copy);
      model.kv.release(0);
      const imported = model.kv.import(bytes, 43);
      assert.ok(imported, "the bytes are those of 43 tokens");
      model.kv.restore(1, imported, 43);
      model.kv.drop(imported);
      const [next] = feed(model, { slot: 1, from: 43, to: 44 });
      model.kv.release(1);
      assertSame(next![0], afresh(model, 44));
    });

    it("gives several logits of one row together with those of others, in order", () => {
      fill(model, 0, 10);
      fill(model, 1, 20, 1);
      fill(model, 2, 30, 2);
      const [a, b, c] = feed(
        model,
        { slot: 2, from: 30, to: 31, text: 2 },
        { slot: 0, from: 10, to: 13, logits: 3 },
        { slot: 1, from: 20, to: 21, text: 1 },
      );
      for (const slot of [0, 1, 2]) model.kv.release(slot);
      assert.deepEqual(
        [a, b, c].map((logits) => logits!.length),
        [1, 3, 1],
      );
      assertSame(a![0], afresh(model, 31, 2));
      for (const i of [0, 1, 2]) assertSame(b![i], afresh(model, 11 + i));
      assertSame(c![0], afresh(model, 21, 1));
    });

    it("drops the tokens that a row replaces if it starts before the end", () => {
      fill(model, 0, 50);
      feed(model, { slot: 0, from: 50, to: 56, text: 3, logits: 6 });
      const [logits] = feed(model, { slot: 0, from: 52, to: 54, text: 4 });
      const mixed = [...textOf(0).slice(0, 50), ...textOf(3).slice(50, 52), ...textOf(4).slice(52, 54)];
      model.kv.release(0);
      const batch = new Batch(1, 64);
      assert.ok(model.kv.reserve(0, 54));
      batch.addRow(0, Int32Array.from(mixed), 0, 54, 1, 0);
      const output = model.step(batch);
      assertSame(logits![0], [...output.logits.subarray(0, model.card.vocabSize)]);
      model.kv.release(0);
    });

    it("copies a prefix of a running sequence several times while the sequence continues", () => {
      fill(model, 0, 70);
      model.kv.copyPrefix(0, 1, 64);
      model.kv.copyPrefix(0, 2, 45);
      const [a, b, c] = feed(
        model,
        { slot: 0, from: 70, to: 71 },
        { slot: 1, from: 64, to: 65 },
        { slot: 2, from: 45, to: 46 },
      );
      // Releasing one of the sequences that share a prefix must not remove the prefix from the cache.
      model.kv.release(0);
      const [d] = feed(model, { slot: 1, from: 65, to: 66 });
      for (const slot of [1, 2]) model.kv.release(slot);
      for (const [i, logits] of [a, b, c, d].entries()) assertSame(logits![0], afresh(model, [71, 65, 46, 66][i]!));
    });

    for (const kept of [64, 70, 96]) {
      it(`continues after the first ${kept} tokens of a copy as if they had just been computed`, () => {
        fill(model, 0, 100);
        const copy = saved(model, 0);
        model.kv.release(0);
        fill(model, 0, 40, 7);
        model.kv.restore(1, copy, kept);
        model.kv.drop(copy);
        const [logits] = feed(model, { slot: 1, from: kept, to: kept + 1 });
        for (const slot of [0, 1]) model.kv.release(slot);
        assertSame(logits![0], afresh(model, kept + 1));
      });
    }

    it("restores the same copy to several slots, and keeps it intact when one of them changes it", () => {
      fill(model, 0, 50);
      const copy = saved(model, 0);
      model.kv.release(0);
      model.kv.restore(0, copy, 50);
      feed(model, { slot: 0, from: 33, to: 60, text: 5 });
      model.kv.restore(1, copy, 50);
      const [logits] = feed(model, { slot: 1, from: 50, to: 51 });
      model.kv.drop(copy);
      for (const slot of [0, 1]) model.kv.release(slot);
      assertSame(logits![0], afresh(model, 51));
    });

    it("accepts exported bytes in another process with the same layout", async () => {
      fill(model, 0, 77);
      const copy = saved(model, 0);
      const bytes = model.kv.export(copy).slice();
      model.kv.drop(copy);
      model.kv.release(0);
      const other = await loadTiny({ pagedKv });
      assert.equal(other.kv.layout, model.kv.layout);
      const imported = other.kv.import(bytes, 77);
      assert.ok(imported);
      other.kv.restore(2, imported, 77);
      other.kv.drop(imported);
      const [logits] = feed(other, { slot: 2, from: 77, to: 78 });
      other.dispose();
      assertSame(logits![0], afresh(model, 78));
    });

    it("rejects bytes that cannot be a copy of that number of tokens", () => {
      fill(model, 0, 20);
      const copy = saved(model, 0);
      const bytes = model.kv.export(copy).slice();
      model.kv.drop(copy);
      model.kv.release(0);
      const free = model.kv.freeBlocks;
      assert.equal(model.kv.import(bytes, 21), null);
      assert.equal(model.kv.import(bytes.subarray(0, 200), 20), null);
      assert.equal(model.kv.import(new Uint8Array(0), 0), null);
      assert.equal(model.kv.import(new Uint8Array(bytes.length), 20), null);
      assert.equal(model.kv.freeBlocks, free);
    });

    it("counts the blocks in use, and has all of them free again when nothing is used", () => {
      const all = model.kv.freeBlocks;
      assert.ok(all > 0 && all <= model.capacity.kvBlocks);
      assert.ok(model.kv.reserve(0, 40));
      assert.equal(model.kv.freeBlocks, all - 2);
      fill(model, 0, 40);
      model.kv.copyPrefix(0, 1, 40);
      feed(model, { slot: 1, from: 40, to: 41 });
      assert.ok(model.kv.freeBlocks < all - 2);
      for (const slot of [0, 1]) model.kv.release(slot);
      assert.equal(model.kv.freeBlocks, all);
    });

    it("has no room for more tokens than a sequence may have", () => {
      assert.equal(model.kv.reserve(0, model.capacity.sequenceTokens + 1), false);
    });

    it("rejects a copy that was dropped", () => {
      fill(model, 0, 5);
      const copy = saved(model, 0);
      model.kv.release(0);
      model.kv.drop(copy);
      assert.throws(() => model.kv.restore(0, copy, 5), /dropped/);
      assert.throws(() => model.kv.drop(copy), /dropped/);
      assert.equal(model.kv.reserve(0, 8), true);
      model.kv.release(0);
    });
  });
}

describe("copies of sequences that have streams", () => {
  it("take at most a fourth of the cache, and what is dropped makes room", async () => {
    const model = await loadTiny({ pagedKv: false, maxSequences: 32, kvType: "f32", maxModelLength: 1024 });
    assert.equal(model.card.kvCacheBytes, 32 * 2 ** 20);
    fill(model, 0, 250);
    const copies: SavedKv[] = [];
    for (let copy = model.kv.save(0); copy; copy = model.kv.save(0)) copies.push(copy);
    // All copies together may take 8 MiB (a fourth of the cache), and each copy takes 1 MiB.
    assert.equal(copies.length, 8);
    model.kv.drop(copies.pop()!);
    const again = saved(model, 0);
    assert.equal(model.kv.save(0), null);
    model.kv.release(0);
    model.kv.restore(3, again, 250);
    const [logits] = feed(model, { slot: 3, from: 250, to: 251 });
    model.kv.release(3);
    assertSame(logits![0], afresh(model, 251));
    model.dispose();
  });

  it("are not overwritten once their bytes have been exported", async () => {
    const model = await loadTiny({ pagedKv: false });
    fill(model, 0, 40);
    const copy = saved(model, 0);
    const bytes = model.kv.export(copy);
    const content = bytes.slice();
    model.kv.drop(copy);
    fill(model, 1, 40, 9);
    model.kv.drop(saved(model, 1));
    assert.deepEqual(bytes, content);
    model.dispose();
  });
});

describe("a pool of KV memory that sequences share", () => {
  // Each of four sequences may have 256 tokens, but the cache has room for only 512. With this KV type, results are equal
  // however a sequence's tokens are ordered in memory.
  const small = { pagedKv: true, kvBudget: { tokens: 512 }, kvType: "q8_0" } as const;

  it("holds as many tokens as the budget says", async () => {
    const model = await loadTiny(small);
    assert.deepEqual([model.capacity.kvBlocks, model.capacity.sequenceTokens], [16, 256]);
    assert.equal(model.card.kvCacheBytes, 512 * 2 * 64 * 2 * (34 / 32));
    model.dispose();
  });

  it("rejects tokens when it is full, continues when a sequence has left, and changes no results", async () => {
    const model = await loadTiny(small);
    const lengths = [0, 0, 0, 0];
    const refused = new Set<number>();
    for (let to = 32; to <= 192; to += 32) {
      for (const slot of [0, 1, 2, 3]) {
        if (!model.kv.reserve(slot, to)) refused.add(slot);
        else {
          feed(model, { slot, from: lengths[slot]!, to, text: slot });
          lengths[slot] = to;
        }
      }
    }
    assert.deepEqual(lengths, [128, 128, 128, 128]);
    assert.deepEqual([...refused], [0, 1, 2, 3]);
    assert.equal(model.kv.freeBlocks, 0);
    // Sequence 3 is preempted: its KV is saved outside the cache.
    const copy = saved(model, 3);
    const bytes = model.kv.export(copy);
    model.kv.drop(copy);
    model.kv.release(3);
    assert.equal(model.kv.freeBlocks, 4);
    assert.ok(model.kv.reserve(0, 256));
    assert.equal(model.kv.import(bytes, 128), null);
    const [first] = feed(model, { slot: 0, from: 128, to: 160 });
    model.kv.release(0);
    const back = model.kv.import(bytes, 128);
    assert.ok(back);
    model.kv.restore(0, back, 128);
    model.kv.drop(back);
    const [last] = feed(model, { slot: 0, from: 128, to: 129, text: 3 });
    for (const slot of [0, 1, 2]) model.kv.release(slot);
    assert.equal(model.kv.freeBlocks, model.capacity.kvBlocks);
    assertSame(first![0], afresh(model, 160));
    assertSame(last![0], afresh(model, 129, 3));
    model.dispose();
  });

  it("shares what sequences have in common, so that more of them fit", async () => {
    const model = await loadTiny(small);
    fill(model, 0, 224);
    for (const slot of [1, 2, 3]) {
      model.kv.copyPrefix(0, slot, 224);
      assert.ok(model.kv.reserve(slot, 256));
    }
    const rows = feed(model, ...[0, 1, 2, 3].map((slot) => ({ slot, from: 224, to: 225 })));
    for (const slot of [0, 1, 2, 3]) model.kv.release(slot);
    const expected = afresh(model, 225);
    for (const [logits] of rows) assertSame(logits, expected);
    model.dispose();
  });

  it("refuses a budget that holds no step of context, naming the key", async () => {
    await assert.rejects(loadTiny({ pagedKv: true, kvBudget: { tokens: 100 } }), /kv_cache|KV cache budget is 100/);
  });
});
