import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { endOfGenerationTokens } from "../../../../engines/files/gguf/end-of-generation.ts";
import type { TokenizerMetadata } from "../../../../engines/files/gguf/metadata.ts";
import { sentencePieceMetadata } from "./tiny-vocabulary.ts";

const plain = { ...sentencePieceMetadata([]), model: "gpt2", types: null, scores: null, bosId: null, eosId: null };

/** Returns the texts of the tokens that end a generation with this vocabulary. */
function ends(tokens: readonly string[], changes: Partial<TokenizerMetadata> = {}): string[] {
  return endOfGenerationTokens({ ...plain, tokens, ...changes }).map((token) => tokens[token] as string);
}

describe("end of generation", () => {
  it("is the token that the file names", () => {
    assert.deepEqual(ends(["a", "b", "c", "d"], { eosId: 3, eotId: 1, eomId: 0 }), ["a", "b", "d"]);
  });

  it("is any token with a known name of an end, even if the file marks it otherwise", () => {
    const names = ["x", "<|im_end|>", "y", "<|endoftext|>", "<｜end▁of▁sentence｜>", "<|im_start|>", "<end_of_turn>"];
    assert.deepEqual(ends(names), ["<|im_end|>", "<|endoftext|>", "<｜end▁of▁sentence｜>", "<end_of_turn>"]);
  });

  it("is the tokenizer's default if the file names none and the vocabulary is large enough", () => {
    assert.deepEqual(endOfGenerationTokens({ ...sentencePieceMetadata([]), eosId: null }), [2]);
    const letters = [..."abcdefghijklmn"];
    assert.deepEqual(ends(letters), ["l"]);
    assert.deepEqual(ends(letters.slice(0, 11)), []);
    assert.deepEqual(ends(letters, { model: "whitespace" }), ["l"]);
    assert.deepEqual(ends(letters, { model: "t5" }), ["b"]);
    assert.deepEqual(ends(letters, { model: "bert" }), []);
  });

  it("is not the end of a message if a turn has several", () => {
    assert.deepEqual(ends(["<|end|>", "<|return|>"]), ["<|end|>", "<|return|>"]);
    assert.deepEqual(ends(["<|end|>", "<|return|>", "<|call|>"]), ["<|return|>", "<|call|>"]);
    assert.deepEqual(ends(["<|end|>", "<|flush|>", "<|calls|>"]), ["<|flush|>", "<|calls|>"]);
    assert.deepEqual(ends(["<|end|>", "<|return|>", "<|call|>"], { eosId: 0 }), ["<|return|>", "<|call|>"]);
  });

  it("is not </s> beside tool responses", () => {
    assert.deepEqual(ends(["</s>", "<eos>"]), ["</s>", "<eos>"]);
    assert.deepEqual(ends(["</s>", "<eos>", "<|tool_response>"]), ["<eos>", "<|tool_response>"]);
  });

  it("is a padding token of a code model, or the start of another file or repository", () => {
    const names = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"];
    assert.deepEqual(ends(names), ["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]);
    assert.deepEqual(ends(names, { infillPadId: 0, infillRepositoryId: 1, infillFileId: 1 }), [
      "<|fim_prefix|>",
      "<|fim_middle|>",
    ]);
  });
});
