// Fixtures for tests of the wasm engine on real threads: a tiny model, two texts, and functions that feed rows of the texts.
import assert from "node:assert/strict";
import { Batch, type StepOutput } from "../../../engines/batch.ts";
import type { LoadedModel, ModelSpec } from "../../../engines/engine.ts";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import { specOf, tinyModel } from "../../fixtures/models/models.ts";

export const blockTokens = 16;
export const maxSequences = 4;
/** Text with more tokens than fit into one forward pass. */
export const text = Int32Array.from({ length: 256 }, (_, i) => 3 + ((i * i * 31 + i * 7) % 500));
export const otherText = text.map((token) => 3 + ((token + 17) % 500));

export interface Row {
  readonly slot: number;
  readonly from: number;
  readonly to: number;
  readonly tokens?: Int32Array;
  readonly logitsCount?: number;
  readonly isPooled?: boolean;
}

export async function load(changes: Partial<ModelSpec> = {}): Promise<LoadedModel> {
  const spec = { threads: 2, blockTokens, maxSequences, kvBudget: { tokens: 4096 }, extraLogitsRows: 200, ...changes };
  return wasmEngine.load(specOf(await tinyModel(), spec), () => undefined);
}

/** Reserves KV for one step and runs it. */
export function step(model: LoadedModel, rows: readonly Row[]): StepOutput {
  const batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
  for (const { slot, from, to, tokens = text, logitsCount = 0, isPooled = false } of rows) {
    assert.ok(model.kv.reserve(slot, to), `room for ${to} tokens`);
    const row = batch.addRow(slot, tokens, from, to, logitsCount, 0);
    batch.wantPooled[row] = isPooled ? 1 : 0;
  }
  return model.step(batch);
}

/** Feeds one row. Returns the logits of each of its output tokens. */
export function logits(model: LoadedModel, row: Row): Float32Array[] {
  const { logitsCount = 1 } = row;
  const { logits: all, logitsRow } = step(model, [{ ...row, logitsCount }]);
  const { vocabSize } = model.card;
  const first = logitsRow[0] ?? -1;
  return Array.from({ length: logitsCount }, (_, i) => all.slice((first + i) * vocabSize, (first + i + 1) * vocabSize));
}

/** Feeds the tokens before ends.at(-1) in several rows, one up to each position in `ends`. Returns the logits after the last token. */
export function feed(model: LoadedModel, slot: number, tokens: Int32Array, ends: readonly number[]): Float32Array[] {
  let last: Float32Array[] = [];
  for (const [i, to] of ends.entries()) last = logits(model, { slot, from: ends[i - 1] ?? 0, to, tokens });
  return last;
}

/** Returns the tokens of `text` before index `at`, followed by tokens of the other text. */
export function otherFrom(at: number): Int32Array {
  return text.map((token, i) => (i < at ? token : (otherText[i] as number)));
}

export function assertNear(actual: Float32Array, expected: Float32Array, share: number): void {
  const range = Math.max(...expected) - Math.min(...expected);
  assert.ok(range > 0.1, "the numbers say something");
  for (const [i, value] of expected.entries()) {
    assert.ok(
      Math.abs(value - (actual[i] ?? Number.NaN)) < share * range,
      `number ${i}: ${actual[i]}, expected ${value}`,
    );
  }
}
