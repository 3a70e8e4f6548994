import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { after, beforeEach, describe, it } from "node:test";
import { createAdapterFolder } from "../../../../cli/assembly/adapters/adapter-folder.ts";

const base = mkdtempSync(join(tmpdir(), "adapter-folder-"));
const parent = join(base, "tmp");
beforeEach(() => {
  rmSync(parent, { recursive: true, force: true });
  mkdirSync(parent);
});
after(() => rmSync(base, { recursive: true, force: true }));

const entry = new URL("../../../../cli/assembly/adapters/adapter-folder.js", import.meta.url).href;

/** Starts a process that creates an adapter folder and then runs the code `end`. Returns the path of that folder. */
function madeByAnother(end: string): string {
  const script = `
    const { createAdapterFolder } = await import(${JSON.stringify(entry)});
    const { writeFileSync } = await import("node:fs");
    const folder = createAdapterFolder([${JSON.stringify(parent)}]);
    writeFileSync(folder + "/one.gguf", "GGUF");
    writeFileSync(1, folder);
    ${end}`;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8" });
  assert.ok(stdout.startsWith(parent), stderr);
  return stdout;
}

describe("the folder of prepared adapters", () => {
  it("is private to this user, and each user has a separate one", () => {
    const [one, other] = [createAdapterFolder([parent]), createAdapterFolder([parent])];
    assert.notEqual(one, other);
    assert.equal(statSync(one).mode & 0o777, 0o700);
    assert.equal(readdirSync(parent).length, 2);
  });

  it("is in the first writable location, which is created if missing", () => {
    const missing = join(parent, "cache", "adapters");
    assert.equal(dirname(createAdapterFolder([missing, parent])), missing);
    writeFileSync(join(parent, "file"), "");
    assert.equal(dirname(createAdapterFolder([join(parent, "file", "adapters"), parent])), parent);
  });

  it("is in this program's cache by default", () => {
    const script = `
      const { createAdapterFolder } = await import(${JSON.stringify(entry)});
      const { writeFileSync } = await import("node:fs");
      writeFileSync(1, createAdapterFolder());`;
    const env = { ...process.env, XDG_CACHE_HOME: parent };
    const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8", env });
    assert.equal(dirname(stdout), join(parent, "troupe", "adapters"));
  });

  it("is removed with its process, unless the process is killed", () => {
    assert.equal(existsSync(madeByAnother("")), false);
    assert.equal(existsSync(madeByAnother("process.exit(3);")), false);
  });

  it("is removed by the next process if its own was killed", () => {
    const left = madeByAnother(
      'process.kill(process.pid, "SIGKILL"); await new Promise(() => setInterval(() => {}, 1000));',
    );
    assert.ok(existsSync(join(left, "one.gguf")));
    createAdapterFolder([parent]);
    assert.equal(existsSync(left), false);
  });

  it("is kept if its process runs or is on another host, or if it is another kind of folder", () => {
    const mine = createAdapterFolder([parent]);
    const dead = "999999999.1";
    const own = basename(mine).split("@")[0] ?? "";
    const elsewhere = join(parent, `troupe-adapters-not-${hostname()}@${dead}@abcdef`);
    const file = join(parent, `${own}@${dead}@abcdef`);
    const link = join(parent, `${own}@${dead}@bcdefg`);
    const target = join(base, "target");
    for (const folder of [elsewhere, target]) mkdirSync(folder, { recursive: true });
    writeFileSync(join(target, "kept"), "");
    writeFileSync(file, "");
    symlinkSync(target, link);
    createAdapterFolder([parent]);
    for (const path of [mine, elsewhere, file, link, join(target, "kept")]) assert.ok(existsSync(path), path);
  });
});
