// Unread stderr: a real process whose stderr is a pipe that nobody reads. It keeps running, drops log lines without reordering
// the rest, and logs how many it dropped.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { tinyModel } from "../../fixtures/models/models.ts";

const command = fileURLToPath(new URL("../../../../cli/troupe.mjs", import.meta.url));
const logModule = new URL("../../../runtime/log/log.js", import.meta.url).href;
const placeModule = new URL("../../../runtime/thread/place.js", import.meta.url).href;

/** Number of requests. Their long paths make long access log lines, which together fill the pipe and the buffer. */
const requestCount = 3000;
const path = `/${"x".repeat(1500)}`;

async function urlOf(child: ChildProcess): Promise<string> {
  let output = "";
  child.stdout?.on("data", (data) => {
    output += data;
  });
  for (let tries = 0; tries < 3000; tries++) {
    const found = /health\s+(http:\/\/\S+)\/health/.exec(output)?.[1];
    if (found !== undefined) return found;
    await sleep(20);
  }
  throw new Error(`it did not start:\n${output}`);
}

describe("a server whose stderr nobody reads", () => {
  let child: ChildProcess;
  let url = "";
  before(async () => {
    const serve = ["serve", "--port", "0", "--host", "127.0.0.1", "--cpu", "--state-dir", "none", "--threads", "1"];
    const argv = [command, ...serve, "--access-log-format", "json", "-m", await tinyModel(), "--max-model-len", "256"];
    child = spawn(process.execPath, argv, { stdio: ["ignore", "pipe", "pipe"] });
    child.stderr?.pause();
    url = await urlOf(child);
  });
  after(() => void child.kill("SIGKILL"));

  it("answers thousands of requests, keeps lines in order, and reports how many were lost once they are read", async () => {
    const ask = async (i: number) => {
      const id = String(i);
      const reply = await fetch(url + path, {
        headers: { "x-request-id": id },
        signal: AbortSignal.timeout(10_000),
      });
      assert.equal((await reply.text()).length > 0, true);
    };
    for (let i = 0; i < requestCount; i += 20) await Promise.all(Array.from({ length: 20 }, (_, j) => ask(i + j)));
    let text = "";
    child.stderr?.on("data", (data) => {
      text += data;
    });
    child.stderr?.resume();
    for (let tries = 0; !text.includes('"lost":'); tries++) {
      assert.ok(tries < 500, `no line tells of lost ones; ${text.length} characters have come`);
      await sleep(20);
    }
    await ask(requestCount);
    await sleep(200);
    const lines = text
      .split("\n")
      .filter((line) => line.startsWith("{"))
      .map((line) => JSON.parse(line) as { msg: string; requestId?: string; lost?: number });
    const ids = lines.flatMap(({ msg, requestId }) => (msg === "request" ? [Number(requestId)] : []));
    const lost = lines.reduce((sum, line) => sum + (line.lost ?? 0), 0);
    assert.ok(lost > 0 && ids.length > 500, `${lost} lost, ${ids.length} kept`);
    assert.equal(ids.length + lost, requestCount + 1);
    // Twenty requests run at once, so their lines may be out of order by up to 20.
    for (const [i, id] of ids.entries()) assert.ok(id > (ids[i - 1] ?? -1) - 20, `${id} after ${ids[i - 1]}`);
    assert.equal(ids.at(-1), requestCount);
  });
});

describe("a process that ends", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-stderr-"));
  let scriptCount = 0;
  after(() => rmSync(folder, { recursive: true }));

  async function run(code: string, isRead: boolean) {
    const script = `const { createLogger } = await import(${JSON.stringify(logModule)});
      const log = createLogger({ level: "info", format: "json" });
      ${code}`;
    const file = join(folder, `${scriptCount++}.mjs`);
    writeFileSync(file, script);
    const child = spawn(process.execPath, [file], { stdio: ["ignore", "ignore", "pipe"] });
    let text = "";
    if (isRead) {
      // Reading starts late, when the pipe has been full for a while.
      await sleep(300);
      child.stderr.on("data", (data) => {
        text += data;
      });
    } else child.stderr.pause();
    const killer = setTimeout(() => child.kill("SIGKILL"), 20_000);
    const [exitCode, signal] = (await once(child, "exit")) as [number | null, string | null];
    clearTimeout(killer);
    if (isRead && !child.stderr.readableEnded) await once(child.stderr, "close");
    return { exitCode, signal, text };
  }
  const logMuch = `for (let i = 0; i < 4000; i++) log.info({ i, padding: "x".repeat(80) }, "line");`;

  for (const kind of ["thread", "process"]) {
    it(`has seen its ${kind} start, print much and die of an error, though nobody read a line`, async () => {
      const inside = `export async function start() {
        for (let i = 0; i < 4000; i++) console.error("x".repeat(100));
        setTimeout(() => { throw new Error("boom"); }, 50);
        return "ready";
      }`;
      const options = {
        name: "probe",
        module: `data:text/javascript,${encodeURIComponent(inside)}`,
        init: null,
        kind,
      };
      const ended = await run(
        `${logMuch}
        const { spawnPlace } = await import(${JSON.stringify(placeModule)});
        const options = ${JSON.stringify({ ...options, startTimeoutMs: 8000 })};
        const place = await spawnPlace({ ...options, module: new URL(options.module) });
        const { reason } = await place.exit;
        process.exit(place.ready === "ready" && /boom/.test(reason) ? 0 : 5);`,
        false,
      );
      assert.deepEqual([ended.exitCode, ended.signal], [0, null]);
    });
  }

  for (const [how, code, exitCode] of [
    ["by itself", "", 0],
    ["with process.exit", "process.exit(3);", 3],
    ["of an error that nobody catches", 'throw new Error("boom");', 1],
  ] as const) {
    it(`${how} leaves what was logged before to a reader that goes on`, async () => {
      const ended = await run(logMuch + code, true);
      assert.deepEqual([ended.exitCode, ended.signal], [exitCode, null]);
      assert.match(ended.text, /"i":3999,/);
    });

    it(`${how} is not held by a pipe that nobody reads`, async () => {
      const ended = await run(logMuch + code, false);
      assert.deepEqual([ended.exitCode, ended.signal], [exitCode, null]);
    });
  }
});
