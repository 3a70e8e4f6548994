// Start interrupted during the conversion of a model: the process exits cleanly, and the next start resumes the conversion.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { realModel } from "../../fixtures/models/models.ts";
import { runCommand, startServer } from "../../fixtures/serve.ts";

const command = fileURLToPath(new URL("../../../../cli/troupe.mjs", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "troupe-stopped-"));
const environment = { XDG_CACHE_HOME: join(folder, "cache"), XDG_STATE_HOME: join(folder, "state") };
const converted = join(environment.XDG_CACHE_HOME, "troupe", "models", "converted");
const promptlyMs = 5000;

/** Waits until a conversion has started to write. Returns the output of the process. */
async function untilConverting(child: ChildProcess, into: string): Promise<() => string> {
  let output = "";
  const gather = (data: Buffer) => {
    output += data;
  };
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", gather);
  const names = () => (existsSync(into) ? readdirSync(into).filter((name) => name.endsWith(".partial")) : []);
  for (let waited = 0; waited < 30_000; waited += 10) {
    if (names().length > 0) return () => output;
    assert.equal(child.exitCode, null, output);
    await sleep(10);
  }
  assert.fail(`nothing is converted: ${output}`);
}

describe("a start that is stopped during a conversion", () => {
  after(() => rmSync(folder, { recursive: true, force: true }));

  it("exits cleanly and soon, and the next start continues", async () => {
    const { path } = await realModel();
    // One thread, so that the conversion takes long enough to be stopped.
    const flags = ["-m", path, "--isq", "q4_1", "--max-seqs", "1", "--max-model-len", "256", "--threads", "1"];
    const child = spawn(process.execPath, [command, "serve", "--port", "0", "--cpu", "--engine", "wasm", ...flags], {
      env: { ...process.env, ...environment },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const output = await untilConverting(child, converted);
    const stoppedAt = performance.now();
    child.kill("SIGINT");
    const [code, signal] = await once(child, "exit");
    assert.deepEqual([code, signal], [0, null], output());
    assert.ok(performance.now() - stoppedAt < promptlyMs);
    assert.match(output(), /stopping: what is downloaded or converted so far is kept.*\n.*stopped/s);
    const left = readdirSync(converted);
    assert.equal(left.filter((name) => name.endsWith(".partial")).length, 1, left.join());
    assert.equal(left.filter((name) => name.endsWith(".partial.json")).length, 1, left.join());
    const server = await startServer(flags, environment);
    await server.stop();
    assert.deepEqual(
      readdirSync(converted).map((name) => name.replace(/.*\./, "")),
      ["gguf"],
    );
  });

  it("is the same for quantize, which ends with the code of the signal", async () => {
    const { path } = await realModel();
    const target = join(folder, "own.gguf");
    const child = spawn(
      process.execPath,
      [command, "quantize", "-m", path, "--isq", "iq4_nl", "-o", target, "--threads", "1"],
      {
        env: { ...process.env, ...environment },
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
    const output = await untilConverting(child, folder);
    child.kill("SIGTERM");
    assert.deepEqual(await once(child, "exit"), [143, null], output());
    const record = readdirSync(folder).find((name) => name.endsWith(".partial.json"));
    assert.ok(record !== undefined && "done" in JSON.parse(readFileSync(join(folder, record), "utf8")), output());
  });

  it("does not write a file that is named like one of several", async () => {
    const { path } = await realModel();
    const { code, stderr } = await runCommand([
      "quantize",
      "-m",
      path,
      "--isq",
      "8",
      "-o",
      join(folder, "x-00001-of-00002.gguf"),
    ]);
    assert.equal(code, 2);
    assert.match(stderr, /-o expects a name of a whole model; x-00001-of-00002\.gguf names one of several parts/);
  });
});
