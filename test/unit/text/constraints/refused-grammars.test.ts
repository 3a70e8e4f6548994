import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { RefusedGrammars } from "../../../../engines/text/constraints/refused-grammars.ts";
import { ServerError } from "../../../../runtime/errors.ts";

const error = new ServerError("invalid_value", "no such rule");
const minutes = 60_000;

describe("refused grammars", () => {
  it("are kept for ten minutes", () => {
    const refusals = new RefusedGrammars();
    refusals.add("a", error, 0);
    assert.equal(refusals.of("a", 9 * minutes), error);
    assert.equal(refusals.of("b", 9 * minutes), null);
    assert.equal(refusals.of("a", 11 * minutes), null);
  });

  it("are bounded in number; the oldest are dropped", () => {
    const refusals = new RefusedGrammars();
    for (let i = 0; i < 300; i++) refusals.add(`${i}`, error, i);
    const known = Array.from({ length: 300 }, (_, i) => refusals.of(`${i}`, 300) !== null);
    assert.deepEqual([known[43], known[44], known[299]], [false, true, true]);
  });
});
