// List of the files of a folder whose content code changes while it is listed.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, before, describe, it } from "node:test";
import { filesBelow } from "../../../../actors/tools/files/folder-files.ts";

const base = mkdtempSync(join(tmpdir(), "troupe-folder-files-"));
const outside = join(base, "outside");

describe("the files of a folder", () => {
  before(() => {
    mkdirSync(join(outside, "inner"), { recursive: true });
    for (const name of ["secret", "inner/secret"]) writeFileSync(join(outside, name), "x");
  });
  after(() => rmSync(base, { recursive: true, force: true }));

  /** Makes a folder with files, and lists it. While the entry `at` is listed, replaces the folder `swapped` by a link. */
  async function listed(name: string, at: string, swapped: string): Promise<readonly string[]> {
    const root = join(base, name);
    mkdirSync(join(root, "a", "inner"), { recursive: true });
    for (const path of ["top", "a/own", "a/inner/own"]) writeFileSync(join(root, path), "x");
    const { paths } = await filesBelow(root, 100, (entry) => {
      if (entry.name === at) {
        renameSync(join(root, swapped), join(root, "moved"));
        symlinkSync(outside, join(root, swapped));
      }
      return false;
    });
    return paths.map((path) => relative(root, path)).sort();
  }

  it("are those of all its folders", async () => {
    assert.deepEqual(await listed("plain", "none", "none"), ["a/inner/own", "a/own", "top"]);
  });

  it("are none of a folder that is replaced by a link before it is listed", async () => {
    assert.deepEqual(await listed("last", "a", "a"), ["top"]);
  });

  it("are none of a folder below one that is replaced by a link", async () => {
    assert.deepEqual(await listed("middle", "inner", "a"), ["a/own", "top"]);
  });
});
