import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { isAlive, ownIdentity } from "../../../../runtime/host/process-identity.ts";

const isLinux = process.platform === "linux";
const statOf = (pid: number): string[] => {
  const status = readFileSync(`/proc/${pid}/stat`, "latin1");
  return status.slice(status.lastIndexOf(")") + 2).split(" ");
};

describe("the identity of a process", () => {
  it("is alive for this process, but not with another start time or without a number", () => {
    assert.equal(isAlive(ownIdentity()), true);
    for (const identity of [`${process.pid}:1`, "999999999:1", "x", ""]) assert.equal(isAlive(identity), false);
  });

  it("is not alive for a zombie", { skip: !isLinux }, async () => {
    // Starts a process whose parent never waits for it, so that it becomes a zombie.
    const parent = spawn("sh", ["-c", "sleep 2 & echo $!; exec sleep 60"], { stdio: ["ignore", "pipe", "ignore"] });
    const [line] = await parent.stdout.take(1).toArray();
    const pid = Number(line);
    const identity = `${pid}:${statOf(pid)[19]}`;
    assert.equal(isAlive(identity), true);
    for (let i = 0; i < 500 && statOf(pid)[0] !== "Z"; i++) await sleep(10);
    assert.deepEqual([statOf(pid)[0], isAlive(identity)], ["Z", false]);
    parent.kill("SIGKILL");
  });
});
