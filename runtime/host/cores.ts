// CPU cores for compute threads. Hardware threads of one core share its arithmetic units, so one compute thread per core is
// fastest. If a container has a CPU quota, more threads than the quota allows would only wait. Cores and quotas are read from
// files of Linux in /proc and /sys, without native code.
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";

const topologyOf = (cpu: number) => `/sys/devices/system/cpu/cpu${cpu}/topology/thread_siblings_list`;
/** File that lists the hardware threads of the performance cores. Only hybrid CPUs have it. */
const performanceCores = "/sys/devices/cpu_core/cpus";
const nodes = "/sys/devices/system/node";

/**
 * Returns the number of cores that this process may use. If the system does not report which hardware threads share a core,
 * returns the number of hardware threads.
 */
export function physicalCores(): number {
  const limit = availableParallelism();
  return Math.min(countCores(readText) ?? limit, limit);
}

/**
 * Returns the number of cores for compute threads. The efficiency cores of a hybrid CPU are excluded, because the threads on
 * faster cores would wait for the threads on these cores.
 */
export function computeCores(): number {
  const limit = availableParallelism();
  return Math.min(countCores(readText, performanceThreads(readText)) ?? limit, limit);
}

/**
 * Returns the number of compute threads of a model: `configured`, or, if that is 0, one thread per core within the CPU quota.
 */
export function computeThreads(configured: number, cores = computeCores(), quota = ownCpuQuota()): number {
  return configured || Math.max(1, Math.min(cores, Math.ceil(quota)));
}

/** Returns the CPU quota of this process in cores; Infinity = no quota. */
export function ownCpuQuota(): number {
  return cpuQuota(readText);
}

/**
 * Returns the CPU quota in cores (1.5 = 1.5 s of processor time per second). It is the minimum over this process's cgroups and
 * their parents; Infinity if none has a quota. `read` returns null for a missing file. The file formats are described in
 * cgroup-v2 and sched-bwc in the Linux documentation. In a container, the cgroup of the process is also looked up at the mount
 * point, because its path on the host may not exist there.
 */
export function cpuQuota(read: (path: string) => string | null): number {
  const groups = [...(read("/proc/self/cgroup") ?? "").matchAll(/^\d+:([^:\n]*):\/(.*)$/gm)];
  return Math.min(
    ...groups.flatMap(([, controllers = "", path = ""]) => {
      if (controllers === "") return foldersUp("/sys/fs/cgroup", path).map((folder) => unifiedQuota(read, folder));
      if (!controllers.split(",").includes("cpu")) return [];
      return foldersUp("/sys/fs/cgroup/cpu", path).map((folder) => legacyQuota(read, folder));
    }),
  );
}

function unifiedQuota(read: (path: string) => string | null, folder: string): number {
  const [quota = "", period = ""] = (read(`${folder}/cpu.max`) ?? "").trim().split(" ");
  return quotient(quota, period);
}

function legacyQuota(read: (path: string) => string | null, folder: string): number {
  return quotient(read(`${folder}/cpu.cfs_quota_us`) ?? "", read(`${folder}/cpu.cfs_period_us`) ?? "");
}

/** Returns quota / period; Infinity if the quota is `max`, -1 or "". */
function quotient(quota: string, period: string): number {
  const ratio = Number.parseInt(quota, 10) / Number.parseInt(period, 10);
  return ratio > 0 ? ratio : Number.POSITIVE_INFINITY;
}

/** Returns the folders of a cgroup and of all its parents. */
function foldersUp(root: string, path: string): string[] {
  const names = path.split("/").filter((name) => name !== "");
  return Array.from({ length: names.length + 1 }, (_, count) => [root, ...names.slice(0, count)].join("/"));
}

/** Returns the NUMA nodes on which this process may run; see numaNodes. */
export function ownNumaNodes(): readonly number[] {
  return numaNodes(readText);
}

/**
 * Returns the NUMA nodes that have a hardware thread this process may use; empty if unknown. `read`
 * returns null for a missing file.
 */
export function numaNodes(read: (path: string) => string | null): readonly number[] {
  const allowed = new Set(allowedThreads(read));
  return listed((read(`${nodes}/online`) ?? "").trim()).filter((node) => {
    return listed((read(`${nodes}/node${node}/cpulist`) ?? "").trim()).some((cpu) => allowed.has(cpu));
  });
}

/** Returns the number of cores that the hardware `threads` belong to; null if unknown. `read` returns null for a missing file. */
export function countCores(read: (path: string) => string | null, threads = allowedThreads(read)): number | null {
  // All hardware threads of a core report the same list of siblings.
  const cores = new Set(threads.flatMap((cpu) => read(topologyOf(cpu))?.trim() ?? []));
  return cores.size === 0 ? null : cores.size;
}

/**
 * Returns the hardware threads of performance cores that this process may use. If there are none, returns all hardware threads
 * that this process may use.
 */
export function performanceThreads(read: (path: string) => string | null): number[] {
  const allowed = allowedThreads(read);
  const performance = new Set(listed((read(performanceCores) ?? "").trim()));
  const fast = allowed.filter((cpu) => performance.has(cpu));
  return fast.length > 0 ? fast : allowed;
}

/** Returns the hardware threads that this process may use. Some of them may not exist. */
function allowedThreads(read: (path: string) => string | null): number[] {
  const [, allowed = ""] = /^Cpus_allowed_list:\s*([\d,-]+)$/m.exec(read("/proc/self/status") ?? "") ?? [];
  return listed(allowed);
}

/** Parses a list of numbers and ranges, such as `0-3,8`. The text "" is an empty list. */
function listed(list: string): number[] {
  const ranges = list.split(",").filter((range) => range !== "");
  return ranges.flatMap((range) => {
    const [first = Number.NaN, last = first] = range.split("-").map(Number);
    return first <= last ? Array.from({ length: last - first + 1 }, (_, i) => first + i) : [];
  });
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}
