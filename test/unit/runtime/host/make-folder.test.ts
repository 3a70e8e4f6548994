import assert from "node:assert/strict";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { makeFolder } from "../../../../runtime/host/make-folder.ts";

describe("making a folder", () => {
  const root = mkdtempSync(join(tmpdir(), "make-folder-"));
  after(() => rmSync(root, { recursive: true, force: true }));

  it("makes its parents too, with the given mode, and does nothing if it exists", () => {
    const path = join(root, "a", "b", "c");
    for (let i = 0; i < 2; i++) makeFolder(path, 0o700);
    assert.equal(statSync(path).mode & 0o777, 0o700);
  });

  it("fails if nothing can exist there, or if a file is in the way", { skip: process.platform !== "linux" }, () => {
    assert.throws(() => makeFolder("/proc/troupe/state", 0o700), { code: "ENOENT" });
    writeFileSync(join(root, "file"), "");
    assert.throws(() => makeFolder(join(root, "file", "x"), 0o700), { code: "ENOTDIR" });
  });
});
