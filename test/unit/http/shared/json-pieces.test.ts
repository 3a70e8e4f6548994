import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { jsonPieces, PIECE_LENGTH, utf8Of, writtenLater } from "../../../../http/shared/answer/json-pieces.ts";
import { ServerError } from "../../../../runtime/errors.ts";

const written = (value: unknown): string => [...jsonPieces(value)].join("");

describe("JSON in pieces", () => {
  it("equals JSON.stringify for any plain value", () => {
    const value = fc.anything({ withNullPrototype: false, withObjectString: true, maxDepth: 4 });
    fc.assert(
      fc.property(value, (some) => {
        const text = JSON.stringify(some) ?? "null";
        assert.equal(written(some), text);
      }),
    );
  });

  it("is the same for long texts with any cut, and for lone surrogates", () => {
    fc.assert(
      fc.property(fc.nat(3), fc.constantFrom("x", "😀", "\ud83d", "\ude00", "é", '"\\\n'), (offset, word) => {
        const text = "a".repeat(offset) + word.repeat(2 * PIECE_LENGTH);
        assert.equal(written({ text }), JSON.stringify({ text }));
      }),
      { numRuns: 40 },
    );
  });

  it("comes in pieces of bounded length", () => {
    const value = {
      texts: ["é".repeat(5 * PIECE_LENGTH), "\u0001".repeat(PIECE_LENGTH)],
      list: new Array(50_000).fill(1),
    };
    const pieces = [...jsonPieces(value)];
    assert.equal(pieces.join(""), JSON.stringify(value));
    for (const piece of pieces.slice(0, -1)) assert.ok(piece.length >= PIECE_LENGTH);
    // An escaped character may take six characters.
    for (const piece of pieces) assert.ok(piece.length <= 7 * PIECE_LENGTH, `${piece.length}`);
  });

  it("has lazy values in place, repeatedly", () => {
    const later = writtenLater<number[]>(() => ["[1", ",2]"]);
    const value = { a: later, b: [later, null], c: undefined };
    for (let i = 0; i < 2; i++) assert.equal(written(value), '{"a":[1,2],"b":[[1,2],null]}');
    assert.throws(() => JSON.stringify(value), /jsonPieces/);
  });

  it("is encoded with a turn of the event loop per piece, and refused if too long", async () => {
    const text = "é".repeat(4 * PIECE_LENGTH);
    let turns = 0;
    const ticking = setInterval(() => turns++, 0);
    const bytes = await utf8Of(jsonPieces(text), 16 * PIECE_LENGTH);
    clearInterval(ticking);
    assert.equal(Buffer.from(bytes).toString(), JSON.stringify(text));
    assert.ok(turns > 0);
    await assert.rejects(utf8Of(jsonPieces(text), PIECE_LENGTH), (error: unknown) => {
      return error instanceof ServerError && error.code === "invalid_value";
    });
  });
});
