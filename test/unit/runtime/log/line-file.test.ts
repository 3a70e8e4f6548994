import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { LineFile } from "../../../../runtime/log/line-file.ts";

const folder = mkdtempSync(join(tmpdir(), "line-file-"));
after(() => rmSync(folder, { recursive: true }));

async function openFile(name: string, maxWaitingBytes: number) {
  const path = name.startsWith("/") ? name : join(folder, name);
  const lost: [number, string][] = [];
  const file = await LineFile.open(path, { maxWaitingBytes, onLost: (...loss) => lost.push(loss), reportEveryMs: 5 });
  return { path, file, lost };
}

describe("a file of lines", () => {
  it("has all lines in order once it is closed, after the earlier ones", async () => {
    for (const from of [0, 500]) {
      const { file } = await openFile("ordered", 1e6);
      for (let i = 0; i < 500; i++) {
        file.append(`${from + i}`);
        if (i % 100 === 0) await new Promise(setImmediate);
      }
      await file.close(1000);
    }
    const lines = readFileSync(join(folder, "ordered"), "utf8").split("\n");
    assert.deepEqual(lines, [...Array.from({ length: 1000 }, (_, i) => `${i}`), ""]);
  });

  it("drops and counts lines beyond its queue, and accepts lines again when it has written", async () => {
    const { path, file, lost } = await openFile("bounded", 10);
    for (const line of ["123", "45é", "6789", "", "7"]) file.append(line);
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.deepEqual(lost, [[2, "the disk does not keep up"]]);
    file.append("later");
    await file.close(1000);
    assert.equal(readFileSync(path, "utf8"), "123\n45é\n\nlater\n");
    assert.equal(lost.length, 1);
  });

  it("reports a full disk at intervals and at the end", async () => {
    const { file, lost } = await openFile("/dev/full", 1e6);
    file.append("a");
    file.append("b");
    await new Promise((resolve) => setTimeout(resolve, 50));
    const count = () => lost.reduce((sum, [each]) => sum + each, 0);
    assert.equal(count(), 2);
    assert.match(lost[0]![1], /ENOSPC/);
    file.append("c");
    await file.close(1000);
    assert.equal(count(), 3);
  });

  it("counts unwritten lines as lost when it closes", async () => {
    const path = join(folder, "pipe");
    execFileSync("sh", ["-c", `mkfifo '${path}'`]);
    // A pipe that nobody reads accepts no more than its capacity.
    const reader = await open(path, "r+");
    const { file, lost } = await openFile("pipe", 1e7);
    file.append("x".repeat(1e6));
    file.append("y");
    await new Promise(setImmediate);
    file.append("z");
    await file.close(20);
    assert.deepEqual(lost, [[3, "the program ended first"]]);
    const piece = Buffer.alloc(1e6);
    for (let left = 1e6 + 1; left > 0; ) left -= (await reader.read(piece)).bytesRead;
    await reader.close();
  });
});
