// Build lock of troupe.mjs: a start waits while another start builds. Runs the real troupe.mjs in a small separate source
// tree, whose build writes one file.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach, describe, it } from "node:test";
import { fileURLToPath } from "node:url";

const root = mkdtempSync(join(tmpdir(), "troupe-build-"));
const lock = join(root, "dist", ".building");
const entry = fileURLToPath(new URL("../../../../cli/troupe.mjs", import.meta.url));

const buildScript = `
  import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
  mkdirSync("dist/cli", { recursive: true });
  appendFileSync("builds", "x");
  writeFileSync("dist/cli/main.js", "console.log('started')");
`;

async function start(limitMs: number) {
  const startedAt = performance.now();
  const child = spawn(process.execPath, [join(root, "cli", "troupe.mjs")], { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (data) => {
    output += data;
  });
  const killer = setTimeout(() => child.kill("SIGKILL"), limitMs);
  await once(child, "close");
  clearTimeout(killer);
  return { isStarted: output.includes("started"), ms: performance.now() - startedAt };
}

describe("a start that has to build", () => {
  beforeEach(() => {
    rmSync(root, { recursive: true, force: true });
    for (const folder of ["cli", "http", "actors", "engines", "runtime", "browser", "ui", "node_modules/typescript"]) {
      mkdirSync(join(root, folder), { recursive: true });
    }
    writeFileSync(join(root, "package.json"), JSON.stringify({ type: "module", scripts: { build: "node build.mjs" } }));
    for (const name of ["tsconfig.json", "tsconfig.build.json"]) writeFileSync(join(root, name), "{}");
    writeFileSync(join(root, "build.mjs"), buildScript);
    copyFileSync(entry, join(root, "cli", "troupe.mjs"));
    mkdirSync(lock, { recursive: true });
  });
  after(() => rmSync(root, { recursive: true, force: true }));

  it("takes over a lock that has no pid and is older than a few seconds", async () => {
    const old = new Date(Date.now() - 60_000);
    utimesSync(lock, old, old);
    assert.ok((await start(30_000)).isStarted);
    assert.ok(!existsSync(lock));
  });

  it("gives a new lock without a pid some time to get one", async () => {
    const { isStarted, ms } = await start(40_000);
    assert.ok(isStarted);
    assert.ok(ms > 4000, `it took the lock after ${ms} ms`);
  });

  it("takes over a lock whose process has exited, and waits for one whose process runs", async () => {
    writeFileSync(join(lock, "pid"), String(2 ** 22 + 1));
    assert.ok((await start(30_000)).isStarted);
    rmSync(join(root, "dist"), { recursive: true });
    mkdirSync(lock, { recursive: true });
    writeFileSync(join(lock, "pid"), String(process.pid));
    assert.ok(!(await start(2000)).isStarted);
  });
});
