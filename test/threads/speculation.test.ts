// Speculation on real threads with a real forward pass of a model with random weights.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { loadDraftModel } from "../../actors/model/draft-model.ts";
import type { LoadedModel, ModelSpec } from "../../engines/engine.ts";
import { wasmEngine } from "../../engines/wasm/engine.ts";
import type { ServerError } from "../../runtime/errors.ts";
import { specOf, tinyModel } from "../fixtures/models/models.ts";
import { writeTinyModel } from "../fixtures/models/tiny-gguf.ts";
import { decode, lookupOnly } from "../fixtures/speculative-decoding.ts";

const maxNewTokens = 40;
const modelOnly = { ...lookupOnly, promptLookup: false };

async function spec(changes: Partial<ModelSpec> = {}): Promise<ModelSpec> {
  return specOf(await tinyModel(), { maxSequences: 3, threads: 2, kvType: "f32", ...changes });
}

async function load(test: TestContext): Promise<LoadedModel> {
  const model = await wasmEngine.load(await spec(), () => undefined);
  test.after(() => model.dispose());
  return model;
}

const prompts = [17, 101, 230].map((seed) => Array.from({ length: 40 }, (_, i) => ((i % 15) * seed + 3) % 500));
const parts = { prompts, maxNewTokens, stepMs: (tokens: number) => 5 + 0.2 * tokens };

describe("speculation on a real model", () => {
  it("leaves greedy texts as they are, by prompt lookup and by a draft model", async (test) => {
    const model = await load(test);
    const plain = decode({ ...parts, model, options: null });
    const lookup = decode({ ...parts, model, options: lookupOnly });
    assert.deepEqual(lookup.texts, plain.texts);
    assert.ok(lookup.speculation!.statistics.proposed > 0, "there is something to look up");
    const draft = await loadDraftModel(model.card.path, { engine: "wasm", spec: await spec() }, () => undefined);
    const drafted = decode({ ...parts, model, draft, options: modelOnly });
    drafted.speculation?.dispose();
    assert.deepEqual(drafted.texts, plain.texts);
    const { proposed, accepted } = drafted.speculation!.statistics;
    assert.ok(proposed > 50, `${proposed} tokens proposed`);
    assert.ok(accepted > 0.9 * proposed, `a model drafts nearly what it says itself: ${accepted} of ${proposed}`);
  });

  it("refuses a draft model with another vocabulary, and says so", async (test) => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-draft-"));
    test.after(() => rmSync(folder, { recursive: true, force: true }));
    const path = join(folder, "other.gguf");
    await writeTinyModel(path, { seed: 2, vocabularySize: 300 });
    await assert.rejects(
      loadDraftModel(await tinyModel(), { engine: "wasm", spec: await spec({ path }) }, () => undefined),
      (error: ServerError) => error.code === "config_invalid" && /same vocabulary/.test(error.message),
    );
  });
});
