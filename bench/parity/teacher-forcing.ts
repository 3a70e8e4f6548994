// Teacher forcing: feeds one text to two models and compares their logits after every token. The text is cut into windows, and
// each window is one sequence. Used by `bench parity` and by the parity test.
import { Batch } from "../../engines/batch.ts";
import type { LoadedModel } from "../../engines/engine.ts";
import { type Divergence, DivergenceMeter } from "./divergence.ts";

/** Prompts are computed in chunks that end on multiples of this many tokens. */
export const chunkTokens = 32;
/** Tokens of a batch that contains every prefix of a chunk: 1 + 2 + ... + chunkTokens. */
export const chunkBatchTokens = (chunkTokens * (chunkTokens + 1)) / 2;

/**
 * How the tested model gets its tokens: in "chunks", as in prefill, or by "decode", one token per step for all windows at once.
 */
export type Form = "chunks" | "decode";

export interface Forced {
  /** Reference model, fed one token at a time. For llama.cpp, chunks of up to 48 tokens give bit-identical results. */
  readonly reference: LoadedModel;
  readonly subject: LoadedModel;
  /** Tokens of the text. The last one is not fed, only looked up in the logits. */
  readonly tokens: Int32Array;
  /** Number of tokens in a window, a multiple of chunkTokens. */
  readonly windowTokens: number;
}

/**
 * Compares the two models. Both need chunkTokens sequences of windowTokens tokens. The tested model also needs batches of
 * chunkBatchTokens.
 */
export function compareForced(forced: Forced, form: Form): Divergence {
  const meter = new DivergenceMeter();
  const windows = windowsOf(forced);
  if (form === "decode") feedSingly(forced.reference, [[forced.subject, meter]], windows);
  else for (const window of windows) feedChunks(forced, window, meter);
  return meter.result();
}

/** Compares several models with the reference, one token per step. Each needs chunkTokens sequences of windowTokens tokens. */
export function compareAll(forced: Omit<Forced, "subject">, subjects: readonly LoadedModel[]): Divergence[] {
  const tested = subjects.map((subject) => [subject, new DivergenceMeter()] as const);
  feedSingly(forced.reference, tested, windowsOf(forced));
  return tested.map(([, meter]) => meter.result());
}

function windowsOf({ tokens, windowTokens }: Omit<Forced, "subject">): Int32Array[] {
  const count = Math.floor((tokens.length - 1) / windowTokens);
  return Array.from({ length: count }, (_, i) => tokens.subarray(i * windowTokens, (i + 1) * windowTokens + 1));
}

function feedSingly(
  reference: LoadedModel,
  tested: readonly (readonly [LoadedModel, DivergenceMeter])[],
  windows: readonly Int32Array[],
): void {
  const models = [reference, ...tested.map(([subject]) => subject)];
  const batch = new Batch(chunkTokens, chunkTokens);
  for (let first = 0; first < windows.length; first += chunkTokens) {
    const together = windows.slice(first, first + chunkTokens);
    const length = Math.min(...together.map((window) => window.length - 1));
    for (let position = 0; position < length; position++) {
      batch.clear();
      for (const [slot, window] of together.entries()) batch.addRow(slot, window, position, position + 1, 1, 0);
      const expected = logitsOf(reference, batch);
      for (const [subject, meter] of tested) {
        const actual = logitsOf(subject, batch);
        for (const [row, window] of together.entries())
          meter.add(expected(row), actual(row), tokenAt(window, position + 1));
      }
    }
    for (const slot of together.keys()) for (const { kv } of models) kv.release(slot);
  }
}

/**
 * Compares the logits of the two models over a window, chunk by chunk. A row returns logits only after its last token, so all
 * prefixes of a chunk are fed at once: slot i gets the first i + 1 tokens. Then the KV of the last slot, which got all tokens, is
 * copied to the others.
 */
function feedChunks({ reference, subject }: Forced, window: Int32Array, meter: DivergenceMeter): void {
  const length = window.length - 1;
  const batch = new Batch(chunkTokens, chunkBatchTokens);
  for (let from = 0; from < length; from += chunkTokens) {
    const expected = chunkLogits(reference, window, from);
    batch.clear();
    for (let slot = 0; slot < chunkTokens; slot++) batch.addRow(slot, window, from, from + slot + 1, 1, 0);
    const actual = logitsOf(subject, batch);
    for (const [row, logits] of expected.entries()) {
      meter.add(logits, actual(row), tokenAt(window, from + row + 1));
    }
    spread(subject, chunkTokens - 1, from + chunkTokens);
  }
  reference.kv.release(0);
  for (let slot = 0; slot < chunkTokens; slot++) subject.kv.release(slot);
}

/** Returns a copy of the logits after each token of a chunk. */
function chunkLogits(reference: LoadedModel, window: Int32Array, from: number): Float32Array[] {
  const batch = new Batch(1, 1);
  return Array.from({ length: chunkTokens }, (_, i) => {
    batch.clear();
    batch.addRow(0, window, from + i, from + i + 1, 1, 0);
    return logitsOf(reference, batch)(0).slice();
  });
}

/** Copies the KV of slot `source` to every other slot. */
function spread({ kv }: LoadedModel, source: number, tokenCount: number): void {
  const saved = kv.save(source);
  if (saved === null) throw new Error(`the model gives no copy of ${tokenCount} tokens`);
  for (let slot = 0; slot < chunkTokens; slot++) {
    if (slot === source) continue;
    kv.release(slot);
    kv.restore(slot, saved, tokenCount);
  }
  kv.drop(saved);
}

/** Returns the logits after each row of a batch, as views of the engine's memory. */
function logitsOf(model: LoadedModel, batch: Batch): (row: number) => Float32Array {
  const { logits, logitsRow } = model.step(batch);
  const { vocabSize } = model.card;
  return (row) => {
    const start = (logitsRow[row] as number) * vocabSize;
    return logits.subarray(start, start + vocabSize);
  };
}

/** Returns the token at an index known to be in range. */
function tokenAt(tokens: Int32Array, index: number): number {
  return tokens[index] as number;
}
