import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { renderReference } from "../../../../cli/config/reference.ts";

describe("docs/configuration.md", () => {
  it("matches the table of settings", () => {
    const file = new URL("../../../../../docs/configuration.md", import.meta.url);
    assert.equal(readFileSync(file, "utf8"), renderReference(), "the table has changed: run `npm run docs`");
  });
});
