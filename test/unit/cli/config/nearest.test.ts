import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { nearest, suggestion } from "../../../../runtime/nearest.ts";

describe("the nearest known word", () => {
  it("is found through a typing mistake, whatever the case", () => {
    assert.equal(nearest("max_sesq", ["port", "max_seqs", "host"]), "max_seqs");
    assert.equal(nearest("PORT", ["host", "port"]), "port");
    assert.equal(suggestion("hots", ["host"]), '; did you mean "host"?');
  });

  it("is the closest of several", () => {
    assert.equal(nearest("cache_typ", ["cache_tips", "cache_type"]), "cache_type");
  });

  it("is none when nothing is near", () => {
    assert.equal(nearest("temperature", ["port", "host"]), null);
    assert.equal(suggestion("temperature", []), "");
  });
});
