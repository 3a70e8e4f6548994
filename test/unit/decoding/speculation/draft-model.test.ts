import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { vocabularyDifference } from "../../../../actors/model/draft-model.ts";
import type { TokenizerMetadata } from "../../../../engines/files/gguf/metadata.ts";

function vocabulary(tokens: readonly string[], types: readonly number[] | null = null): TokenizerMetadata {
  return { tokens, types } as TokenizerMetadata;
}

describe("the vocabulary of a draft model", () => {
  it("may be the same", () => {
    assert.equal(vocabularyDifference(vocabulary(["a", "b"]), vocabulary(["a", "b"])), null);
  });

  it("may differ in unused tokens at the end", () => {
    const padded = vocabulary(["a", "b", "[PAD2]", "[PAD3]"], [1, 1, 5, 5]);
    assert.equal(vocabularyDifference(vocabulary(["a", "b"]), padded), null);
    assert.equal(vocabularyDifference(padded, vocabulary(["a", "b"])), null);
  });

  it("is refused, naming the first token that differs", () => {
    const difference = vocabularyDifference(vocabulary(["a", "b", "c"]), vocabulary(["a", "x", "y"]));
    assert.match(difference ?? "", /token 1 is "x", not "b"/);
  });

  it("is refused if one has used tokens that the other lacks", () => {
    const difference = vocabularyDifference(vocabulary(["a", "b"]), vocabulary(["a", "b", "c"], [1, 1, 1]));
    assert.match(difference ?? "", /has 3 tokens, not 2/);
  });
});
