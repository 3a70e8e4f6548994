// Architecture parity with llama.cpp on a generated model of every architecture. Compares the logits after every
// token of a prompt, and after later tokens that are fed one by one. Prompts of many lengths are fed whole and in
// chunks.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { ModelSpec } from "../../../engines/engine.ts";
import { llamaEngine } from "../../../engines/llama/engine.ts";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import { errorShare, type Feed, feedForAll, feedInChunks, mixedSteps } from "../../fixtures/feeding.ts";
import { specOf } from "../../fixtures/models/models.ts";
import { tinyArchitectures, tinyWindow, writeTinyArchitecture } from "../../fixtures/models/tiny-architectures.ts";

/** Maximum error as a fraction of the range of the logits. */
const largestError = 0.003;
/** Prompt that is longer than one pass of the engine and longer than any sliding window. */
const longPrompt: Feed = { slot: 6, from: 0, to: 5 * tinyWindow };
const steps = [...mixedSteps, [longPrompt], [{ slot: 6, from: longPrompt.to, to: longPrompt.to + 1 }]];
const settings: readonly Pick<ModelSpec, "kvType" | "threads">[] = [
  { kvType: "f16", threads: 1 },
  { kvType: "f32", threads: 2 },
];

describe("the wasm engine against llama.cpp on every architecture", () => {
  let directory = "";
  before(() => {
    directory = mkdtempSync(join(tmpdir(), "troupe-architectures-"));
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  for (const [at, name] of tinyArchitectures.entries()) {
    it(`gives llama.cpp's logits within 0.3 % of their range: ${name}`, async () => {
      const path = join(directory, `${at}.gguf`);
      await writeTinyArchitecture(path, name, { seed: 21 });
      for (const setting of settings) {
        const spec = specOf(path, { maxSequences: 7, extraLogitsRows: longPrompt.to, ...setting });
        const llama = await llamaEngine.load({ ...spec, threads: 1 }, () => {});
        const expected = steps.map((rows) => feedForAll(llama, rows));
        llama.dispose();
        const wasm = await wasmEngine.load(spec, () => {});
        try {
          for (const [step, rows] of steps.entries()) {
            for (const [row, positions] of feedForAll(wasm, rows).entries()) {
              for (const [i, logits] of positions.entries()) {
                const error = errorShare(expected[step]![row]![i]!, logits);
                const place = `KV ${setting.kvType}, step ${step}, row ${row}, token ${i}`;
                assert.ok(error <= largestError, `${place}: ${error}`);
              }
            }
          }
        } finally {
          wasm.dispose();
        }
      }
    });
  }
});

describe("the KV cache of a model with sliding windows", () => {
  for (const name of ["gemma2", "gemma3", "olmo2, sliding windows"] as const) {
    it(`continues from saved, shared or truncated KV as from KV just computed, bit for bit: ${name}`, async () => {
      const directory = mkdtempSync(join(tmpdir(), "troupe-windows-"));
      const path = join(directory, "model.gguf");
      await writeTinyArchitecture(path, name, { seed: 8 });
      const model = await wasmEngine.load(specOf(path, { maxSequences: 5, extraLogitsRows: 8, threads: 3 }), () => {});
      // Number of tokens whose KV is saved: more than a sliding window plus one page.
      const cut = 96;
      const end = 110;
      const goOn = (slot: number) => feedInChunks(model, { slot, from: cut, to: end, text: 1 });
      try {
        const expected = feedInChunks(model, { slot: 0, from: 0, to: end, text: 1 });
        feedInChunks(model, { slot: 1, from: 0, to: cut, text: 1 });
        const saved = model.kv.save(1);
        assert.ok(saved);
        const bytes = model.kv.export(saved);
        model.kv.release(1);
        model.kv.restore(2, saved, cut);
        model.kv.copyPrefix(2, 3, cut - tinyWindow);
        feedInChunks(model, { slot: 3, from: cut - tinyWindow, to: cut, text: 2 });
        feedForAll(model, [{ slot: 2, from: cut, to: cut + 8, text: 3 }]);
        assert.deepEqual(goOn(2), expected, "restored, shared with another text, rolled back");
        const imported = model.kv.import(bytes, cut);
        assert.ok(imported);
        model.kv.restore(4, imported, cut);
        assert.deepEqual(goOn(4), expected, "imported");
      } finally {
        model.dispose();
        rmSync(directory, { recursive: true });
      }
    });
  }
});
