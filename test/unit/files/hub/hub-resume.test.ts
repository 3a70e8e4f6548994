import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { limits, modelBytes, partBytes, repo, useHub } from "./hub-rig.ts";

const rig = await useHub();
const { hub } = rig;
const file = "tiny-Q8_0.gguf";
const bytes = modelBytes();
const etag = createHash("sha256").update(bytes).digest("hex");
const folder = join(rig.cache, "models--acme--tiny-GGUF");

describe("an interrupted download", () => {
  it("is resumed where it was when the process was killed", async () => {
    rig.put({ [file]: bytes });
    hub.fault = ({ host, range }) =>
      host === "cdn" && (range === "bytes=3000-3999" || range === "bytes=4000-4499") ? { stallAfter: 300 } : null;
    const program = `
      const { resolveModel } = await import(${JSON.stringify(new URL("../../../../engines/files/hub/resolve-model.js", import.meta.url).href)});
      await resolveModel(${JSON.stringify(repo)}, ${JSON.stringify({ environment: rig.environment, limits: { ...limits, stallMs: 60_000 } })});`;
    const child = execFile(process.execPath, ["--input-type=module", "-e", program]);
    const exit = new Promise((done) => child.once("exit", done));
    const record = join(folder, "blobs", `${etag}.partial.json`);
    const done = () => (existsSync(record) ? (JSON.parse(readFileSync(record, "utf8")).done as number[]) : []);
    const deadline = Date.now() + 10_000;
    while (done()[3] !== 300 || done()[4] !== 300) {
      assert.ok(Date.now() < deadline, `the child came no further than ${done()}`);
      await wait(5);
    }
    child.kill("SIGKILL");
    await exit;
    hub.requests.length = 0;
    hub.fault = () => null;
    const seen: number[] = [];
    await rig.assertFetched(bytes, repo, { onProgress: ({ doneBytes }) => seen.push(doneBytes) });
    assert.deepEqual(hub.ranges().sort(), ["bytes=3300-3999", "bytes=4300-4499"]);
    assert.equal(seen[0], 3600);
    assert.deepEqual(rig.blobs(), [etag]);
  });

  it("keeps what came when the caller aborts, and ends at once", async () => {
    rig.put({ [file]: bytes });
    hub.fault = ({ host, range }) => (host === "cdn" && range === "bytes=2000-2999" ? { stallAfter: 500 } : null);
    const abort = new AbortController();
    const pending = rig.resolve(repo, {
      signal: abort.signal,
      limits: { ...limits, stallMs: 60_000 },
      onProgress: ({ doneBytes }) => doneBytes === bytes.length - 500 && abort.abort(),
    });
    await assert.rejects(pending, { code: "cancelled" });
    hub.requests.length = 0;
    hub.fault = () => null;
    await rig.assertFetched(bytes);
    assert.deepEqual(hub.ranges(), ["bytes=2500-2999"]);
  });

  it("starts again if its record is damaged or outdated, or its bytes are wrong", async () => {
    rig.put({ [file]: bytes });
    const done = [partBytes, partBytes, partBytes, partBytes, 500];
    const records = [
      "{",
      JSON.stringify({ sizeBytes: 9, partBytes, done }),
      JSON.stringify({ sizeBytes: 4500, partBytes, done }),
    ];
    for (const record of records) {
      rmSync(folder, { recursive: true, force: true });
      mkdirSync(join(folder, "blobs"), { recursive: true });
      writeFileSync(join(folder, "blobs", `${etag}.partial`), Buffer.alloc(bytes.length));
      writeFileSync(join(folder, "blobs", `${etag}.partial.json`), record);
      await rig.assertFetched(bytes);
      assert.deepEqual(rig.blobs(), [etag]);
    }
  });
});

describe("two processes that download the same file", () => {
  it("download it once", async () => {
    rig.put({ [file]: bytes });
    const paths = await Promise.all([rig.resolve(), rig.resolve(), rig.resolve(`${repo}:${file}`)]);
    assert.equal(new Set(paths).size, 1);
    assert.equal(hub.ranges().length, 5);
    assert.match(rig.notices[0] ?? "", /^another process is fetching "tiny-Q8_0\.gguf"; waiting for it$/);
  });

  it("do not wait for a process that has exited, even if this process now has its id", async () => {
    const locks = join(rig.cache, ".locks", "models--acme--tiny-GGUF");
    const noSuchProcess = 2 ** 22 + 1;
    for (const [pid, name] of [
      [noSuchProcess, file],
      [process.pid, "other-Q8_0.gguf"],
    ] as const) {
      const start = performance.now();
      rig.put({ [name]: bytes });
      mkdirSync(locks, { recursive: true });
      rmSync(join(folder, "blobs"), { recursive: true, force: true });
      rmSync(join(folder, "snapshots"), { recursive: true, force: true });
      writeFileSync(join(locks, `${etag}.partial.lock`), `${pid} ${hostname()}`);
      await rig.assertFetched(bytes);
      assert.ok(performance.now() - start < 15_000, "an abandoned lock is waited for 30 s");
    }
  });
});
