import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ToolsRig } from "./rig.ts";

/** Number of sessions: more than the maximum number of live interpreters. */
const sessions = 80;
const maxInterpreters = 64;
const maxFolders = 128;

describe("many sessions of tools", () => {
  it("share 64 interpreters: those that wait are ended, and cells wait for those that run", async () => {
    const rig = new ToolsRig({ codeTimeoutMs: 60_000 });
    await rig.client.start();
    let most = 0;
    const timer = setInterval(() => {
      const folders = rig.processes().map((line) => /\/session-\w+\/work /.exec(line)?.[0]);
      most = Math.max(most, new Set(folders).size);
    }, 250);
    try {
      const names = Array.from({ length: sessions }, (_, i) => `session-${i}`);
      const ran = await Promise.all(names.map((name) => rig.python("import time\nx = 1\ntime.sleep(0.5)\nx", name)));
      for (const { content, model } of ran) assert.equal(model.result, "1", content);
      const again = await Promise.all(names.map((name) => rig.python("'x' in globals()", name)));
      const explained = new Map([
        ["True", undefined],
        ["False", "A new Python interpreter was started: variables of earlier calls are lost, files are kept."],
      ]);
      for (const { content, model } of again) assert.equal(model.note, explained.get(String(model.result)), content);
      const lost = again.filter(({ model }) => model.result === "False").length;
      assert.ok(lost >= sessions - maxInterpreters, `${lost} sessions have lost their variables`);
      assert.ok(most > 1 && most <= maxInterpreters, `${most} interpreters at the same time`);
    } finally {
      clearInterval(timer);
      await rig.client.stop(20_000);
    }
    assert.deepEqual(rig.processes(), []);
    rig.dispose();
  });

  it("keep at most 128 work folders while no call runs", async () => {
    const rig = new ToolsRig({ python: null });
    await rig.client.start();
    try {
      for (let i = 0; i < maxFolders + 12; i++) {
        await rig.run("surface_outputs", { outputs: [{ name: "x" }] }, `session-${i}`);
      }
      for (let i = 0; i < 100 && rig.folders().length > maxFolders; i++) await sleep(20);
      assert.equal(rig.folders().length, maxFolders);
    } finally {
      await rig.stop();
    }
    rig.dispose();
  });
});

describe("the size of a work folder", () => {
  it("is exceeded by folders that cannot be listed, and by files that are too large together", async () => {
    const rig = new ToolsRig({ python: null, shellTimeoutMs: 20_000 });
    await rig.client.start();
    try {
      const deep = 'd=$(printf "d%.0s" $(seq 200)); for i in $(seq 60); do mkdir $d; cd $d; done; sleep 15';
      const { content } = await rig.run("shell", { commands: [deep] }, "deep");
      assert.match(content, /exceeded the limit of disk/);
      const path = join(rig.base, "large");
      writeFileSync(path, "");
      truncateSync(path, 4 * 2 ** 40);
      await assert.rejects(rig.client.mount({ session: "large", files: [{ name: "large", path }] }), {
        code: "invalid_value",
        message: /have 4194304 MiB together; the work folder takes \d+ MiB \(max_disk_mb\)/,
      });
    } finally {
      await rig.stop();
    }
    assert.equal(rig.folders().length, 0, "the deep folders are removed too");
    rig.dispose();
  });
});

describe("the Python of the settings", () => {
  it("is refused if the sandbox hides its folder, and taken without a sandbox", async () => {
    for (const mode of ["on", "off"] as const) {
      const folder = mkdtempSync("/tmp/troupe-python-");
      execFileSync("python3", ["-m", "venv", "--without-pip", folder]);
      const rig = new ToolsRig({ mode, python: join(folder, "bin", "python") });
      try {
        if (mode === "on") {
          await assert.rejects(rig.client.start(), { code: "config_invalid", message: /outside of \/tmp and \/work/ });
        } else {
          await rig.client.start();
          assert.equal((await rig.python("import sys\nsys.prefix")).model.result, `'${folder}'`);
        }
      } finally {
        await rig.stop();
        rig.dispose();
        rmSync(folder, { recursive: true, force: true });
      }
    }
  });
});
