// Folder changes: how changes of files in a work folder are detected and displayed.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { changeLines } from "../../../../cli/agent/view/diff-view.ts";
import { FolderChanges, limits } from "../../../../cli/agent/view/folder-changes.ts";

let folder = "";
let changes: FolderChanges;
const write = (name: string, content: string | Uint8Array) => writeFileSync(join(folder, name), content);
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "troupe-changes-"));
  changes = new FolderChanges(folder);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe("the changes in a folder", () => {
  it("are created, changed and deleted files with their texts, once", async () => {
    write("a", "one\n");
    write("b", "old\n");
    assert.deepEqual(await changes.take(), [], "what was there is no change");
    write("b", "new\n");
    write("c", "made\n");
    rmSync(join(folder, "a"));
    assert.deepEqual(await changes.take(), [
      { path: "a", kind: "deleted", before: "one\n", after: null },
      { path: "b", kind: "changed", before: "old\n", after: "new\n" },
      { path: "c", kind: "created", before: null, after: "made\n" },
    ]);
    assert.deepEqual(await changes.take(), []);
    write("c", "made\n");
    assert.deepEqual(await changes.take(), [], "the same text is no change");
  });

  it("are named without texts if a file is binary or large", async () => {
    await changes.take();
    write("binary", Uint8Array.of(1, 0, 2));
    write("invalid", Uint8Array.of(0xc3, 0x28));
    write("large", "x".repeat(limits.fileBytes + 1));
    write("whole", "x".repeat(limits.fileBytes));
    const found = await changes.take();
    assert.deepEqual(
      found.map(({ path, after }) => [path, after?.length ?? null]),
      [
        ["binary", null],
        ["invalid", null],
        ["large", null],
        ["whole", limits.fileBytes],
      ],
    );
  });

  it("are not looked for behind links and in folders that tools fill", async () => {
    const outside = mkdtempSync(join(tmpdir(), "troupe-outside-"));
    symlinkSync(outside, join(folder, "link"));
    for (const name of [".git", "node_modules"]) mkdirSync(join(folder, name));
    await changes.take();
    writeFileSync(join(outside, "secret"), "s");
    symlinkSync(join(outside, "secret"), join(folder, "linked"));
    write("node_modules/x", "x");
    write(".git/index", "x");
    write(".env", "kept\n");
    assert.deepEqual(
      (await changes.take()).map(({ path }) => path),
      [".env"],
    );
    rmSync(outside, { recursive: true });
  });

  it("are not looked for in a folder with too many files, until it has fewer", async () => {
    for (let i = 0; i <= limits.entries; i++) write(`f${i}`, "");
    assert.deepEqual(await changes.take(), []);
    assert.equal(changes.isTracked, false);
    for (let i = 0; i < 5; i++) rmSync(join(folder, `f${i}`));
    assert.deepEqual(await changes.take(), []);
    assert.equal(changes.isTracked, true);
    write("new", "");
    assert.equal((await changes.take()).length, 1);
  });
});

describe("the lines of changes", () => {
  const plain = { dim: String, red: String, green: String };

  it("have a bounded number, and no control characters", () => {
    const after = Array.from({ length: 1000 }, (_, i) => `line ${i}`).join("\n");
    const lines = changeLines(
      [{ path: "a\x1bb", kind: "created", before: null, after: `\x1b[2J\n${after}` }],
      80,
      plain,
    );
    assert.equal(lines[0], "created a\\u{1b}b");
    assert.equal(lines[2], "  +\\u{1b}[2J");
    assert.ok(lines.length < 130);
    assert.match(lines.at(-1) ?? "", /more lines of the diff/);
  });

  it("give up texts that differ too much, in bounded time", () => {
    const numbers = (seed: number) => Array.from({ length: 60_000 }, (_, i) => (i * seed) % 9973).join("\n");
    const startedAt = performance.now();
    const lines = changeLines([{ path: "a", kind: "changed", before: numbers(31), after: numbers(47) }], 80, plain);
    assert.ok(performance.now() - startedAt < 3000);
    assert.match(lines[1] ?? "", /differ too much/);
  });
});
