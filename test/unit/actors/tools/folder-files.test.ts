// List of the files of a folder whose content code changes while it is listed.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, before, describe, it } from "node:test";
import { filesBelow, openFile } from "../../../../actors/tools/files/folder-files.ts";

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

describe("a file of a folder", () => {
  const root = join(base, "root");

  before(() => {
    mkdirSync(join(root, "a"), { recursive: true });
    mkdirSync(outside, { recursive: true });
    for (const path of [join(root, "a", "own"), join(outside, "secret")]) writeFileSync(path, "x");
    symlinkSync(outside, join(root, "out"));
    symlinkSync(join(root, "a"), join(root, "in"));
    symlinkSync(join(outside, "secret"), join(root, "last"));
    symlinkSync(join(outside, "none"), join(root, "gone"));
  });
  after(() => rmSync(base, { recursive: true, force: true }));

  const found = async (name: string): Promise<boolean> => {
    const file = await openFile(root, name);
    await file?.close();
    return file !== null;
  };

  it("is opened by its path, which may have a link within the folder", async () => {
    for (const name of ["a/own", "in/own"]) assert.ok(await found(name), name);
    for (const name of ["none", "a/none", "b/none", "a/own/none"]) assert.ok(!(await found(name)), name);
  });

  it("seems to be missing if a link leads out of the folder, whether or not it exists there", async () => {
    for (const name of ["out/secret", "out/none", "out/secret/none", "gone/x"]) assert.ok(!(await found(name)), name);
    for (const name of ["last", "gone"]) await assert.rejects(openFile(root, name), { code: "ELOOP" }, name);
  });
});
