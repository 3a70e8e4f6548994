import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { groupRoots } from "../../../runtime/sandbox/linux/control-group.ts";
import { openSandbox } from "../../../runtime/sandbox/open-sandbox.ts";

const settings = {
  mode: "on",
  profile: "developer",
  network: "loopback",
  maxMemoryMb: 256,
  maxCpuSecs: 20,
  maxProcs: 32,
  maxDiskMb: 64,
} as const;

/** Returns the command lines of all processes. */
function commandLines(): readonly string[] {
  return readdirSync("/proc").flatMap((name) => {
    try {
      return /^\d+$/.test(name) ? [readFileSync(`/proc/${name}/cmdline`, "latin1").replaceAll("\0", " ")] : [];
    } catch {
      return [];
    }
  });
}

describe("the sandbox of a server that is killed", () => {
  it("leaves no process, and the next start removes its control groups and folder", { timeout: 30_000 }, async () => {
    const base = mkdtempSync(join(tmpdir(), "troupe-abandoned-"));
    const work = join(base, "work");
    mkdirSync(work);
    const mark = `9${process.pid}1`;
    const shell = `(setsid sleep ${mark} &) ; sleep ${mark}; sleep ${mark}`;
    const program = `
      import { openSandbox } from ${JSON.stringify(new URL("../../../runtime/sandbox/open-sandbox.js", import.meta.url).href)};
      const sandbox = openSandbox(${JSON.stringify(settings)}, () => {});
      sandbox.launch({ argv: ["/bin/sh", "-c", ${JSON.stringify(shell)}], workFolder: ${JSON.stringify(work)} });
      setInterval(() => {}, 1000);`;
    const server = spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: "inherit",
      env: { ...process.env, TMPDIR: base },
    });
    const sleeping = (): number => commandLines().filter((line) => line === `sleep ${mark} `).length;
    for (let i = 0; i < 500 && sleeping() < 2; i++) await sleep(20);
    assert.equal(sleeping(), 2, "the command and its daemon run");
    const roots = groupRoots();
    const groups = (): readonly string[] =>
      [roots?.memory, roots?.processes].flatMap((root) =>
        root == null ? [] : readdirSync(root).filter((name) => name.startsWith(`troupe-${server.pid}.`)),
      );
    if (process.getuid?.() === 0) assert.ok(groups().length > 0);
    server.kill("SIGKILL");
    for (let i = 0; i < 250 && sleeping() > 0; i++) await sleep(20);
    assert.equal(sleeping(), 0);

    const before = process.env.TMPDIR;
    process.env.TMPDIR = base;
    const sandbox = openSandbox(settings, () => {});
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
    assert.deepEqual(groups(), []);
    assert.equal(readdirSync(base).filter((name) => name.startsWith("troupe-sandbox-")).length, 1);
    await sandbox.close();
    assert.deepEqual(readdirSync(base).sort(), ["work", "work.tmp"]);
    assert.ok(existsSync(work));
    rmSync(base, { recursive: true });
  });
});
