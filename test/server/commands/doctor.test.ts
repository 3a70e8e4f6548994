// `troupe doctor` in an environment with many problems. The tests run the command itself in a separate environment.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { tmpdir } from "node:os";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

const program = fileURLToPath(new URL("../../../cli/main.js", import.meta.url));

function run(
  argv: readonly string[],
  environment: Record<string, string>,
): Promise<{ code: unknown; stdout: string; stderr: string }> {
  const env = { PATH: process.env.PATH ?? "", ...environment };
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [program, ...argv], { env, timeout: 60_000 }, (_, stdout, stderr) =>
      resolve({ code: child.exitCode, stdout, stderr }),
    );
  });
}

describe("a user without a home folder, and with a wrong setting", () => {
  const poor = { HOME: "", KEEP_ALIVE_INTERVAL: "soon" };

  it("gets both findings from the doctor, which continues", async () => {
    const { code, stdout, stderr } = await run(["doctor", "--json"], poor);
    assert.deepEqual([code, stderr], [1, ""]);
    const { checks } = JSON.parse(stdout) as { checks: { name: string; status: string; message: string }[] };
    const found = new Map(checks.map((check) => [check.name, check]));
    assert.equal(found.get("home")?.status, "error");
    assert.equal(found.get("settings")?.status, "error");
    assert.match(found.get("settings")?.message ?? "", /KEEP_ALIVE_INTERVAL/);
    assert.ok(found.has("wasm_engine") && found.has("port"));
  });

  it("gets one line from the server that says what is missing", async () => {
    const { code, stderr } = await run(["serve", "--port", "0"], { HOME: "" });
    assert.equal(code, 2);
    assert.match(stderr, /no home folder: expected HOME/);
    assert.doesNotMatch(stderr, /\n {4}at /);
  });
});

describe("a model that no engine can have", () => {
  it("is one of the doctor's findings", async () => {
    const { code, stdout } = await run(["doctor", "-m", "/not/there.gguf", "--json"], { HOME: tmpdir() });
    assert.equal(code, 1);
    const { checks } = JSON.parse(stdout) as { checks: { name: string; status: string; message: string }[] };
    const found = checks.find(({ name, status }) => name === "engine" && status === "error");
    assert.match(found?.message ?? "", /there\.gguf/);
    assert.ok(checks.some(({ name }) => name === "wasm_engine"));
  });
});
