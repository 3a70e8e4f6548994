// Step outputs of the wasm engine on real threads: logits of several tokens of a row, and pooled hidden states.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import type { StepOutput } from "../../../engines/batch.ts";
import type { LoadedModel } from "../../../engines/engine.ts";
import { readTensorTable } from "../../../engines/files/gguf/tensors.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { assertNear, load, logits, maxSequences, otherFrom, otherText, type Row, step } from "./wasm-steps.ts";

/** Returns the rows of the model file's output matrix, in F32. */
async function outputMatrix(): Promise<Float32Array> {
  const path = await tinyModel();
  const tensor = (await readTensorTable(path)).tensors.get("output.weight");
  assert.ok(tensor);
  const bytes = readFileSync(path).subarray(tensor.offset, tensor.offset + tensor.bytes);
  return new Float32Array(new Uint8Array(bytes).buffer);
}

describe("the outputs of the wasm engine", () => {
  let model: LoadedModel;
  before(async () => {
    model = await load();
  });
  after(() => model.dispose());

  it("are the logits of several tokens of a row as if each had been fed alone, bit for bit", () => {
    logits(model, { slot: 0, from: 0, to: 40 });
    logits(model, { slot: 1, from: 0, to: 40 });
    const together = logits(model, { slot: 0, from: 40, to: 46, logitsCount: 6 });
    const alone = Array.from({ length: 6 }, (_, i) => logits(model, { slot: 1, from: 40 + i, to: 41 + i })[0]);
    assert.deepEqual(together, alone);
    for (const slot of [0, 1]) model.kv.release(slot);
  });

  it("follow the rows and tokens of a step through several passes", () => {
    const [expected] = logits(model, { slot: 3, from: 0, to: 90 });
    const { logits: all, logitsRow } = step(model, [
      { slot: 0, from: 0, to: 50, tokens: otherText, logitsCount: 1 },
      { slot: 1, from: 0, to: 150, logitsCount: 150 },
      { slot: 2, from: 0, to: 7 },
      { slot: 3, from: 90, to: 92, logitsCount: 2 },
    ]);
    assert.deepEqual([...logitsRow], [0, 1, -1, 151]);
    const { vocabSize } = model.card;
    const own = all.slice((1 + 89) * vocabSize, (1 + 90) * vocabSize);
    assertNear(own, expected as Float32Array, 1e-4);
    for (let slot = 0; slot < maxSequences; slot++) model.kv.release(slot);
  });

  it("forget drafts: a row that begins before the end replaces what follows", () => {
    const wrong = otherFrom(42);
    logits(model, { slot: 0, from: 0, to: 40 });
    logits(model, { slot: 0, from: 40, to: 48, tokens: wrong, logitsCount: 8 });
    logits(model, { slot: 1, from: 0, to: 40 });
    logits(model, { slot: 1, from: 40, to: 42 });
    model.kv.copyPrefix(0, 2, 42);
    const expected = logits(model, { slot: 1, from: 42, to: 50, logitsCount: 3 });
    assert.deepEqual(logits(model, { slot: 0, from: 42, to: 50, logitsCount: 3 }), expected);
    assert.deepEqual(logits(model, { slot: 2, from: 42, to: 50, logitsCount: 3 }), expected);
    for (const slot of [0, 1, 2]) model.kv.release(slot);
  });

  it("reject more logits rows than fit a step, and stay usable", () => {
    const rows = [0, 1].map((slot) => ({ slot, from: 0, to: 150, logitsCount: 150 }));
    assert.throws(() => step(model, rows), /300 logits rows; expected at most 204/);
    for (const slot of [0, 1]) model.kv.release(slot);
    assert.equal(logits(model, { slot: 0, from: 0, to: 5 }).length, 1);
    model.kv.release(0);
  });

  /** Returns the pooled output of a row. */
  function pooledOf({ pooled, pooledRow }: StepOutput, row: number): Float32Array {
    const { pooledLength } = model.capabilities;
    const first = (pooledRow[row] ?? -1) * pooledLength;
    return pooled.slice(first, first + pooledLength);
  }

  it("are pooled over the tokens of a row, summed over chunks, in steps with rows that need logits", () => {
    assert.equal(model.capabilities.pooling, "mean");
    const [plain] = logits(model, { slot: 1, from: 0, to: 40 });
    model.kv.release(1);
    const whole = pooledOf(step(model, [{ slot: 0, from: 0, to: 150, isPooled: true }]), 0);
    model.kv.release(0);
    const sum = new Float32Array(model.capabilities.pooledLength);
    for (const [from, to] of [
      [0, 32],
      [32, 33],
      [33, 128],
      [128, 150],
    ] as const) {
      const isFirst = from === 0;
      const rows: Row[] = [
        { slot: 2, from, to, tokens: otherText, isPooled: true },
        ...(isFirst ? [{ slot: 1, from: 0, to: 40, logitsCount: 1 }] : []),
        { slot: 0, from, to, isPooled: true },
      ];
      const output = step(model, rows);
      for (const [i, value] of pooledOf(output, rows.length - 1).entries()) sum[i] = (sum[i] as number) + value;
      if (isFirst) {
        assert.deepEqual([...output.pooledRow.subarray(0, 3)], [0, -1, 1]);
        assert.deepEqual(output.logits.slice(0, model.card.vocabSize), plain);
      }
    }
    assertNear(sum, whole, 1e-4);
    for (const slot of [0, 1, 2]) model.kv.release(slot);
  });

  it("are pooled from the hidden states that the logits are made of", async () => {
    const count = 100;
    const pooled = pooledOf(step(model, [{ slot: 0, from: 0, to: count, isPooled: true }]), 0);
    model.kv.release(0);
    const sums = new Float32Array(model.card.vocabSize);
    for (const row of logits(model, { slot: 0, from: 0, to: count, logitsCount: count })) {
      for (const [token, value] of row.entries()) sums[token] = (sums[token] as number) + value;
    }
    model.kv.release(0);
    const output = await outputMatrix();
    const { length } = pooled;
    const expected = sums.map((_, token) =>
      output
        .subarray(token * length, (token + 1) * length)
        .reduce((dot, weight, i) => dot + weight * (pooled[i] ?? 0), 0),
    );
    assertNear(expected, sums, 1e-4);
  });
});
