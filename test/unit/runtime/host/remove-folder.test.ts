import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";

const module = new URL("../../../../runtime/host/remove-folder.js", import.meta.url).href;
const nobody = 65_534;

/** Runs code in a process of an ordinary user, because root ignores permissions. In the code, `functions` is the tested module. */
function asUser(code: string): { readonly status: number | null; readonly stderr: string } {
  const change = process.getuid?.() === 0 ? `process.setgid(${nobody}); process.setuid(${nobody});` : "";
  // Loads the module before switching to the ordinary user, who may not be allowed to read it.
  const script = `
    const functions = await import(${JSON.stringify(module)});
    const fs = await import("node:fs");
    ${change}
    ${code}`;
  return spawnSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8" });
}

describe("removal of a folder", () => {
  it("does not depend on the permissions of the folders in it, and follows no link", () => {
    const base = mkdtempSync(join(tmpdir(), "troupe-remove-"));
    chmodSync(base, 0o777);
    const outside = join(base, "outside");
    mkdirSync(outside);
    writeFileSync(join(outside, "kept.txt"), "x");
    for (const name of ["removeFolder", "removeFolderSync"]) {
      const path = join(base, name);
      const { status, stderr } = asUser(`
        const path = ${JSON.stringify(path)};
        fs.mkdirSync(path + "/a/b/c", { recursive: true });
        fs.writeFileSync(path + "/a/b/c/file", "x", { mode: 0 });
        fs.symlinkSync(${JSON.stringify(outside)}, path + "/a/b/link");
        for (const folder of ["a/b/c", "a/b", "a"]) fs.chmodSync(path + "/" + folder, 0);
        await functions.${name}(path);
        await functions.${name}(path);`);
      assert.equal(status, 0, stderr);
      assert.equal(existsSync(path), false);
    }
    assert.ok(existsSync(join(outside, "kept.txt")));
    rmSync(base, { recursive: true });
  });

  it("reaches folders whose paths are too long for the system", () => {
    const base = mkdtempSync(join(tmpdir(), "troupe-remove-"));
    chmodSync(base, 0o777);
    for (const name of ["removeFolder", "removeFolderSync"]) {
      const path = join(base, name);
      const { status, stderr } = asUser(`
        const path = ${JSON.stringify(path)};
        fs.mkdirSync(path);
        process.chdir(path);
        for (let i = 0; i < 60; i++) {
          fs.mkdirSync("d".repeat(200));
          process.chdir("d".repeat(200));
        }
        fs.writeFileSync("file", "x");
        process.chdir("/");
        await functions.${name}(path);`);
      assert.equal(status, 0, stderr);
      assert.equal(existsSync(path), false);
    }
    rmSync(base, { recursive: true });
  });
});
