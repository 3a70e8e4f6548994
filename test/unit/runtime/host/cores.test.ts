import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { describe, it } from "node:test";
import {
  computeThreads,
  countCores,
  cpuQuota,
  numaNodes,
  performanceThreads,
  physicalCores,
} from "../../../../runtime/host/cores.ts";

/**
 * Returns a function that reads simulated system files (/proc, /sys) of a machine with these hardware threads and their siblings.
 * `allowed`: the threads that this process may use.
 */
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

  it("does not count missing hardware threads", () => {
    assert.equal(countCores(machine("0-127", fourThreads)), 2);
  });

  it("is unknown if the system has no such files", () => {
    assert.equal(
      countCores(() => null),
      null,
    );
    assert.equal(countCores(machine("0-3", {})), null);
  });

  it("leaves the efficiency cores of a hybrid CPU out", () => {
    const siblings = { 0: "0-1", 1: "0-1", 2: "2", 3: "3" };
    const hybrid = (allowed: string) => (path: string) =>
      path === "/sys/devices/cpu_core/cpus" ? "0-1\n" : machine(allowed, siblings)(path);
    assert.deepEqual(performanceThreads(hybrid("0-3")), [0, 1]);
    assert.deepEqual(performanceThreads(hybrid("2-3")), [2, 3], "it may use no others");
    assert.equal(countCores(hybrid("0-3"), [0, 1]), 1);
  });

  it("is never more than the hardware threads of this process", () => {
    const cores = physicalCores();
    assert.ok(cores >= 1 && cores <= availableParallelism(), `${cores} cores`);
  });
});

describe("NUMA nodes", () => {
  const read = (allowed: string) => (path: string) => {
    const files: Readonly<Record<string, string>> = {
      "/sys/devices/system/node/online": "0-1,3\n",
      "/sys/devices/system/node/node0/cpulist": "0-1\n",
      "/sys/devices/system/node/node1/cpulist": "2-3\n",
      // NUMA node that has memory but no cores.
      "/sys/devices/system/node/node3/cpulist": "\n",
    };
    return files[path] ?? machine(allowed, {})(path);
  };

  it("are those with hardware threads this process is allowed on", () => {
    assert.deepEqual(numaNodes(read("0-7")), [0, 1]);
    assert.deepEqual(numaNodes(read("2")), [1]);
  });

  it("are none if the system has no such files", () => {
    assert.deepEqual(numaNodes(machine("0-3", {})), []);
  });
});

describe("the CPU quota", () => {
  const files = (content: Readonly<Record<string, string>>) => (path: string) => content[path] ?? null;

  it("is read from cpu.max of the cgroup", () => {
    const limited = { "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "150000 100000\n" };
    assert.equal(cpuQuota(files(limited)), 1.5);
    const free = { "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "max 100000\n" };
    assert.equal(cpuQuota(files(free)), Number.POSITIVE_INFINITY);
  });

  it("is the minimum of the cgroup and its parents", () => {
    const nested = {
      "/proc/self/cgroup": "0::/system.slice/troupe.service\n",
      "/sys/fs/cgroup/system.slice/cpu.max": "200000 100000\n",
      "/sys/fs/cgroup/system.slice/troupe.service/cpu.max": "400000 100000\n",
    };
    assert.equal(cpuQuota(files(nested)), 2);
  });

  it("is read from the cpu controller of cgroup v1", () => {
    const legacy = {
      "/proc/self/cgroup": "5:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n",
      "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000\n",
      "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    };
    assert.equal(cpuQuota(files(legacy)), 2.5);
    assert.equal(
      cpuQuota(files({ ...legacy, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n" })),
      Number.POSITIVE_INFINITY,
    );
  });

  it("is none if the system has no such files", () => {
    assert.equal(
      cpuQuota(() => null),
      Number.POSITIVE_INFINITY,
    );
  });

  it("gives a started core a thread, and never fewer than one", () => {
    assert.deepEqual(
      [0.5, 1, 1.5, 8].map((quota) => computeThreads(0, 4, quota)),
      [1, 1, 2, 4],
    );
    assert.equal(computeThreads(3, 4, 1), 3);
  });
});
