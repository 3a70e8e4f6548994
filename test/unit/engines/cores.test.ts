import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { describe, it } from "node:test";
import { countCores, physicalCores } from "../../../engines/cores.ts";

/** A machine that lets us on some hardware threads, and has some, with their siblings. */
function machine(allowed: string, siblings: Readonly<Record<number, string>>): (path: string) => string | null {
  const files = new Map([
    ["/proc/self/status", `Name:\tnode\nCpus_allowed:\tff\nCpus_allowed_list:\t${allowed}\nx:\t1\n`],
  ]);
  for (const [cpu, list] of Object.entries(siblings)) {
    files.set(`/sys/devices/system/cpu/cpu${cpu}/topology/thread_siblings_list`, `${list}\n`);
  }
  return (path) => files.get(path) ?? null;
}

const fourThreads = { 0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3" };

describe("counting cores", () => {
  it("counts two threads of a core once", () => {
    assert.equal(countCores(machine("0-3", fourThreads)), 2);
    assert.equal(countCores(machine("0-1", { 0: "0", 1: "1" })), 2);
  });

  it("counts only cores this process is allowed on", () => {
    assert.equal(countCores(machine("1,3", fourThreads)), 1);
    assert.equal(countCores(machine("0,2-3", fourThreads)), 2);
  });

  it("does not count hardware threads that are not there", () => {
    assert.equal(countCores(machine("0-127", fourThreads)), 2);
  });

  it("knows nothing where the system has no such files", () => {
    assert.equal(
      countCores(() => null),
      null,
    );
    assert.equal(countCores(machine("0-3", {})), null);
  });

  it("is never more than the hardware threads of this process", () => {
    const cores = physicalCores();
    assert.ok(cores >= 1 && cores <= availableParallelism(), `${cores} cores`);
  });
});
