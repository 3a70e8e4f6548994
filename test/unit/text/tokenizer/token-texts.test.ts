// Shared table of token texts: it must match the vocabulary for every token of every kind of vocabulary.
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { readModelMetadata } from "../../../../engines/files/gguf/metadata.ts";
import { SharedTokenTexts, tokenTextTable } from "../../../../engines/text/tokenizer/token-texts.ts";
import { createVocabulary, type Vocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { realModel } from "../../../fixtures/models/models.ts";
import {
  bytePairFile,
  control,
  sentencePieceFile,
  unigramFile,
  userDefined,
  wordPieceFile,
  writeVocabulary,
} from "../../../fixtures/text/vocabularies.ts";
import { inTemporaryFolder } from "./tiny-vocabulary.ts";

const harmony = {
  ...bytePairFile("gpt-4o"),
  tokens: ["<|return|>", "<|call|>", "<|channel|>", "<|end|>", "<|start|>", "", "\ufffd", "a\u0000b"],
  types: [control, control, control, control, userDefined, control],
  merges: [],
};

const files = {
  "byte pairs": bytePairFile("llama-bpe"),
  "a sentence piece model": sentencePieceFile(),
  "word pieces": wordPieceFile(),
  unigrams: unigramFile(),
  "control tokens that are shown": harmony,
};

function assertSame(vocabulary: Vocabulary): void {
  // The table is cloned, as it is when it is sent to another thread.
  const texts = new SharedTokenTexts(structuredClone(tokenTextTable(vocabulary)));
  for (let token = 0; token < vocabulary.size; token++) {
    assert.equal(texts.tokenText(token), vocabulary.tokenText(token), `text of token ${token}`);
    assert.deepEqual([...texts.piece(token)], [...vocabulary.piece(token)], `bytes of token ${token}`);
  }
  assert.equal(texts.piece(vocabulary.size).length, 0);
}

describe("the shared token texts", () => {
  for (const [name, file] of Object.entries(files)) {
    it(`equal those of ${name}`, async () => {
      await inTemporaryFolder(async (folder) => {
        const path = join(folder, "vocabulary.gguf");
        await writeVocabulary(path, file);
        assertSame(createVocabulary((await readModelMetadata(path)).tokenizer));
      });
    });
  }

  it("equal those of a real model", async () => {
    assertSame(createVocabulary((await readModelMetadata((await realModel()).path)).tokenizer));
  });

  it("are in shared memory, not copied to another thread", async () => {
    const table = tokenTextTable(createVocabulary((await readModelMetadata((await realModel()).path)).tokenizer));
    const received = structuredClone(table);
    for (const part of ["bytes", "ends"] as const) {
      table.pieces[part][0] = 7;
      assert.equal(received.pieces[part][0], 7);
    }
  });
});
