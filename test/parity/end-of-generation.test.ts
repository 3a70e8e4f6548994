// Tokens with a special role in decoding: those that end a generation, and those that a model must never generate.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { endOfGenerationTokens } from "../../engines/files/gguf/end-of-generation.ts";
import { readModelMetadata } from "../../engines/files/gguf/metadata.ts";
import { llamaEngine } from "../../engines/llama/engine.ts";
import { wasmEngine } from "../../engines/wasm/engine.ts";
import { realModel, specOf } from "../fixtures/models/models.ts";
import { writeTinyModel } from "../fixtures/models/tiny-gguf.ts";

const folder = mkdtempSync(join(tmpdir(), "end-of-generation-"));

/** Final tokens of the test vocabularies. Which of these tokens end a generation depends on the other tokens of the vocabulary. */
const lastTokens = [
  ["<|end|>"],
  ["<|end|>", "<|return|>", "<|call|>", "<|start|>"],
  ["<|end|>", "<|calls|>", "<|flush|>"],
  ["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "</s>"],
  ["</s>", "<|tool_response>", "<turn|>", "<eos>"],
  ["<|fim_prefix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"],
  ["[EOS]", "[EOT]", "[PAD]", "[e~["],
];

async function assertSame(path: string): Promise<void> {
  const model = await llamaEngine.load(specOf(path, { maxSequences: 1, maxModelLength: 64 }), () => {});
  const { tokenizer } = await readModelMetadata(path);
  const expected = model.tokens.endOfGeneration;
  model.dispose();
  assert.ok(expected.length > 0);
  assert.deepEqual(endOfGenerationTokens(tokenizer), expected);
}

after(() => rmSync(folder, { recursive: true }));

describe("the suppressed tokens of a file", () => {
  for (const engine of [llamaEngine, wasmEngine]) {
    it(`are known to the engine ${engine === llamaEngine ? "llama" : "wasm"}`, async () => {
      const path = join(folder, "suppressed.gguf");
      await writeTinyModel(path, { seed: 1, layers: 1, width: 32, heads: 1, suppressed: [7, 300] });
      const model = await engine.load(specOf(path, { maxSequences: 1, maxModelLength: 64 }), () => {});
      model.dispose();
      assert.deepEqual(model.tokens.suppressed, [7, 300]);
    });
  }
});

describe("our tokens that end a generation and the native engine's", () => {
  it("are the same for the real model", async () => assertSame((await realModel()).path));

  for (const [i, names] of lastTokens.entries()) {
    it(`are the same for a vocabulary with ${names.join(" ")}`, async () => {
      const path = join(folder, `${i}.gguf`);
      await writeTinyModel(path, { seed: 1, layers: 1, width: 32, heads: 1, lastTokens: names });
      await assertSame(path);
    });
  }
});
