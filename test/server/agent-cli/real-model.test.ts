// `troupe agent` with the real default model: a plain task ends, whether the model calls tools or not.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { realModel } from "../../fixtures/models/models.ts";

const command = fileURLToPath(new URL("../../../../cli/troupe.mjs", import.meta.url));

describe("an agent with the real model", () => {
  it("does a task with the model loaded in the same command, and leaves nothing in the folder", async () => {
    const base = mkdtempSync(join(tmpdir(), "troupe-agent-real-"));
    const { path } = await realModel();
    const limits = ["--max-model-len", "4096", "--max-tokens", "40", "--max-tool-rounds", "3", "--temperature", "0"];
    const args = ["agent", "--yes", "-m", path, "--cpu", "--threads", "1", ...limits, "--sandbox-network", "none"];
    const env = { ...process.env, XDG_STATE_HOME: join(base, "state"), TMPDIR: base };
    const work = mkdtempSync(join(tmpdir(), "troupe-agent-work-"));
    const child = spawn(process.execPath, [command, ...args, "Say hello."], {
      cwd: work,
      env,
      stdio: ["ignore", "pipe", "pipe"],
    });
    const said = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const)
      child[name].on("data", (data) => {
        said[name] += data;
      });
    const [code] = (await once(child, "close", { signal: AbortSignal.timeout(120_000) })) as [number];
    assert.equal(code, 0, said.stderr);
    assert.notEqual(said.stdout.trim(), "");
    assert.match(said.stderr, /\d+ tokens, .*\nsession sess_\w+; continue it with --continue\n$/);
    assert.deepEqual(readdirSync(work), []);
    assert.deepEqual(readdirSync(base), ["state"], "no temporary folder is left");
    rmSync(base, { recursive: true });
    rmSync(work, { recursive: true });
  });
});
