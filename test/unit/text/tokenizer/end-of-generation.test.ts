import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { endOfGenerationTokens } from "../../../../engines/files/gguf/end-of-generation.ts";
import type { TokenizerMetadata } from "../../../../engines/files/gguf/metadata.ts";
import { sentencePieceMetadata } from "./tiny-vocabulary.ts";

const plain = { ...sentencePieceMetadata([]), model: "gpt2", types: null, scores: null, bosId: null, eosId: null };

/** Texts of the tokens that end a generation. */
function ends(tokens: readonly string[], changes: Partial<TokenizerMetadata> = {}): string[] {
  return endOfGenerationTokens({ ...plain, tokens, ...changes }).map((token) => tokens[token] as string);
}

describe("end of generation", () => {
  it("is what the file names", () => {
    assert.deepEqual(ends(["a", "b", "c", "d"], { eosId: 3, eotId: 1, eomId: 0 }), ["a", "b", "d"]);
  });

  it("is any token with the name of an end, whatever the file says of it", () => {
    const names = ["x", "<|im_end|>", "y", "<|endoftext|>", "<｜end▁of▁sentence｜>", "<|im_start|>", "<end_of_turn>"];
    assert.deepEqual(ends(names), ["<|im_end|>", "<|endoftext|>", "<｜end▁of▁sentence｜>", "<end_of_turn>"]);
  });

  it("is the tokenizer's usual end where the file names none, if the vocabulary reaches so far", () => {
    assert.deepEqual(endOfGenerationTokens({ ...sentencePieceMetadata([]), eosId: null }), [2]);
    const letters = [..."abcdefghijklmn"];
    assert.deepEqual(ends(letters), ["l"]);
    assert.deepEqual(ends(letters.slice(0, 11)), []);
    assert.deepEqual(ends(letters, { model: "whitespace" }), ["l"]);
    assert.deepEqual(ends(letters, { model: "t5" }), ["b"]);
    assert.deepEqual(ends(letters, { model: "bert" }), []);
  });

  it("is not the end of one message where a turn has several", () => {
    assert.deepEqual(ends(["<|end|>", "<|return|>"]), ["<|end|>", "<|return|>"]);
    assert.deepEqual(ends(["<|end|>", "<|return|>", "<|call|>"]), ["<|return|>", "<|call|>"]);
    assert.deepEqual(ends(["<|end|>", "<|flush|>", "<|calls|>"]), ["<|flush|>", "<|calls|>"]);
    assert.deepEqual(ends(["<|end|>", "<|return|>", "<|call|>"], { eosId: 0 }), ["<|return|>", "<|call|>"]);
  });

  it("is not </s> beside tool responses", () => {
    assert.deepEqual(ends(["</s>", "<eos>"]), ["</s>", "<eos>"]);
    assert.deepEqual(ends(["</s>", "<eos>", "<|tool_response>"]), ["<eos>", "<|tool_response>"]);
  });

  it("is where a code model pads, or goes on to the next file or repository", () => {
    const names = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"];
    assert.deepEqual(ends(names), ["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]);
    assert.deepEqual(ends(names, { infillPadId: 0, infillRepositoryId: 1, infillFileId: 1 }), [
      "<|fim_prefix|>",
      "<|fim_middle|>",
    ]);
  });
});
