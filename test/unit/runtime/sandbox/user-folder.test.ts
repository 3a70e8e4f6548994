// Disk limit of commands that work in a folder of the user.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { openSandbox } from "../../../../runtime/sandbox/open-sandbox.ts";

const skip = process.platform === "linux" ? false : "the limit of disk space needs /proc";
const mebibyte = 2 ** 20;
const limits = { maxMemoryMb: 512, maxCpuSecs: 60, maxProcs: 64, maxDiskMb: 2 };
const settings = { mode: "off", profile: "developer", network: "full", ...limits } as const;

describe("a command in a folder of the user", { skip }, () => {
  // A file system on which few other programs write.
  const base = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "troupe-user-folder-"));
  const workFolder = join(base, "work");
  const temporaryFolder = join(base, "tmp");

  const launch = (t: { after(action: () => Promise<void>): void }, script: string, isService = false) => {
    mkdirSync(workFolder, { recursive: true });
    const sandbox = openSandbox(settings, () => {});
    t.after(async () => {
      await sandbox.close();
      rmSync(base, { recursive: true, force: true });
    });
    return sandbox.launch({ argv: ["/bin/sh", "-c", script], workFolder, temporaryFolder, isService });
  };

  it("can change a file that was larger than the disk limit", async (t) => {
    mkdirSync(workFolder, { recursive: true });
    writeFileSync(join(workFolder, "large"), Buffer.alloc(3 * mebibyte));
    const { exited } = launch(t, "echo more >> large");
    assert.deepEqual(await exited, { code: 0, signal: null, limit: null });
  });

  it("may add as much as the limit in each hour, if it runs for as long as the server", async (t) => {
    const service = launch(
      t,
      `head -c ${3 * mebibyte} /dev/zero; read -r _; head -c ${4 * mebibyte} /dev/zero > new; read -r _`,
      true,
    );
    service.stdout.resume();
    await sleep(500);
    const { now } = performance;
    t.mock.method(performance, "now", () => now.call(performance) + 3_600_001);
    await sleep(500);
    writeFileSync(join(base, "of another program"), Buffer.alloc(4 * mebibyte));
    assert.equal(await Promise.race([service.exited, sleep(1000)]), undefined);
    service.stdin.write("\n");
    assert.equal((await service.exited).limit, "disk");
  });
});
