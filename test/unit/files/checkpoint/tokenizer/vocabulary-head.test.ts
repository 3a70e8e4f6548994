// Vocabulary file: a tokenizer folder without weights is converted to the header of a GGUF file, which is read like that of a
// model.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { vocabularyHead } from "../../../../../engines/files/checkpoint/tokenizer/vocabulary-head.ts";
import { readModelMetadata } from "../../../../../engines/files/gguf/metadata.ts";
import { readModelSampling } from "../../../../../engines/files/model-sampling.ts";
import { createVocabulary } from "../../../../../engines/text/tokenizer/vocabulary.ts";
import { byteLevelJson, TokenizerRig } from "./tokenizer-rig.ts";

const rig = new TokenizerRig();
after(() => rig.dispose());

describe("a vocabulary without weights", () => {
  it("has the tokens, the chat template and the sampling of its folder", async () => {
    rig.write({
      "tokenizer.json": byteLevelJson(),
      "chat_template.jinja": "{{ messages[0].content }}",
      "generation_config.json": { temperature: 0.25 },
      "config.json": { model_type: "qwen3" },
    });
    const path = join(rig.path, "vocabulary.gguf");
    writeFileSync(path, await vocabularyHead(rig.path, () => {}));
    const { architecture, chatTemplates, tokenizer } = await readModelMetadata(path);
    assert.deepEqual([architecture, chatTemplates.get("default")], ["qwen3", "{{ messages[0].content }}"]);
    assert.ok(createVocabulary(tokenizer).encode("abc").length > 0);
    assert.equal((await readModelSampling(path, () => {})).temperature?.value, 0.25);
  });

  it("is rejected with a specific error if the folder has no tokenizer", async () => {
    rig.write({ "config.json": {} });
    await assert.rejects(
      vocabularyHead(rig.path, () => {}),
      { code: "model_file_invalid" },
    );
  });
});
