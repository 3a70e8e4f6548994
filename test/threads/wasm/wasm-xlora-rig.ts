// X-LoRA rig for tests of the wasm engine: a tiny model, X-LoRAs for it, functions that feed texts, and the reference
// results.
import assert from "node:assert/strict";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { Batch } from "../../../engines/batch.ts";
import type { MixtureSpec, ModelSpec } from "../../../engines/engine.ts";
import { prepareMixture } from "../../../engines/files/lora/mixture/mixture.ts";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import type { WasmModel } from "../../../engines/wasm/model.ts";
import { temporaryFolder } from "../../fixtures/lora/lora-prepared.ts";
import { type WrittenXlora, writeXlora, type XloraOptions } from "../../fixtures/lora/xlora.ts";
import { type ReferenceOptions, referenceLogits } from "../../fixtures/lora/xlora-reference.ts";
import { specOf } from "../../fixtures/models/models.ts";
import { writeTinyModel } from "../../fixtures/models/tiny-gguf.ts";
import { assertNear } from "./wasm-steps.ts";

const folder = temporaryFolder();
export const modelPath = join(folder, "tiny.gguf");
export const limits = { maxAdapters: 16, maxRank: 64, maxBytes: 2 ** 24 };
/** Text with more tokens than fit into one forward pass. */
export const text = Int32Array.from({ length: 80 }, (_, i) => 3 + ((i * i * 31 + i * 7) % 500));
export const otherText = text.map((token) => 3 + ((token + 17) % 500));
/** Maximum difference from the reference logits, as a fraction of their range. */
const bound = 5e-4;

await writeTinyModel(modelPath, { seed: 7, heads: 4, kvHeads: 2, feedForward: 96 });

export interface Prepared {
  readonly written: WrittenXlora;
  readonly spec: MixtureSpec;
}

let count = 0;

export async function prepare(options: Partial<XloraOptions> = {}, keptAfter: number | null = null): Promise<Prepared> {
  // With this type and alpha, preparation does not round the adapters again, so rounding errors do not matter here.
  const adapterOptions = (index: number) => ({ dtype: "F16" as const, alpha: 4, ...options.adapterOptions?.(index) });
  const path = join(folder, `x${count++}`);
  const written = await writeXlora(path, { modelPath, seed: count, ...options, adapterOptions });
  const { folder: source, orderFile } = written;
  const prepared = join(folder, "prepared");
  return { written, spec: await prepareMixture({ source, orderFile, modelPath, limits, folder: prepared, keptAfter }) };
}

export async function load(
  test: TestContext,
  mixture: MixtureSpec | null,
  changes: Partial<ModelSpec> = {},
): Promise<WasmModel> {
  const sizes = { maxSequences: 4, blockTokens: 16, kvBudget: { tokens: 2048 }, extraLogitsRows: 200 };
  const spec = specOf(modelPath, { threads: 2, kvType: "f32", ...sizes, mixture, ...changes });
  const model = (await wasmEngine.load(spec, () => undefined)) as WasmModel;
  test.after(() => model.dispose());
  return model;
}

export interface Row {
  readonly slot: number;
  readonly from: number;
  readonly to: number;
  readonly tokens?: Int32Array;
  /** Number of tokens at the end whose logits are returned; default 1. */
  readonly logitsCount?: number;
}

/** Runs one step. Returns the logits of the last tokens of each row. */
export function step(model: WasmModel, rows: readonly Row[]): Float32Array[][] {
  const batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
  for (const { slot, from, to, tokens = text, logitsCount = 1 } of rows) {
    assert.ok(model.kv.reserve(slot, to));
    batch.addRow(slot, tokens, from, to, logitsCount, 0);
  }
  const { logits, logitsRow } = model.step(batch);
  const { vocabSize } = model.card;
  return rows.map(({ logitsCount = 1 }, row) =>
    Array.from({ length: logitsCount }, (_, i) =>
      logits.slice((logitsRow[row]! + i) * vocabSize, (logitsRow[row]! + i + 1) * vocabSize),
    ),
  );
}

/** Feeds a prompt in two chunks and then the other tokens one by one. Returns the logits after the prompt and after each later token. */
export function generate(model: WasmModel, tokens: Int32Array, prompt: number, slot = 0, chunk = 5): Float32Array[] {
  step(model, [{ slot, from: 0, to: chunk, tokens, logitsCount: 0 }]);
  const logits = step(model, [{ slot, from: chunk, to: prompt, tokens }]).flat();
  for (let at = prompt; at < tokens.length; at++) {
    logits.push(...step(model, [{ slot, from: at, to: at + 1, tokens }]).flat());
  }
  return logits;
}

/** Returns the expected result of `generate`, computed from the definition of X-LoRA. */
export async function reference(
  { folder: source, orderFile }: WrittenXlora,
  tokens: Int32Array,
  promptLength: number,
  options: ReferenceOptions = {},
): Promise<readonly Float32Array[]> {
  const all = await referenceLogits(modelPath, source, orderFile, tokens, { promptLength, ...options });
  return all.slice(promptLength - 1);
}

export function assertAllNear(actual: readonly Float32Array[], expected: readonly Float32Array[]): void {
  assert.equal(actual.length, expected.length);
  for (const [i, logits] of expected.entries()) assertNear(actual[i]!, logits, bound);
}

export function isNear(actual: readonly Float32Array[], expected: readonly Float32Array[]): boolean {
  try {
    assertAllNear(actual, expected);
    return true;
  } catch {
    return false;
  }
}
