// Description of the machine for a benchmark's result: CPU with the features that affect the speed, number of cores, CPU quota,
// frequency governor, Node version.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import os from "node:os";
import { ownCpuQuota, physicalCores } from "../runtime/host/cores.ts";
import { cpuFlags, hostFacts } from "../runtime/host/system.ts";

/** CPU features for which a kernel of one of the engines has code. */
const telling: ReadonlySet<string> = new Set([
  ...["avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"],
  ...["amx_tile", "amx_int8", "amx_bf16", "asimddp", "i8mm", "sve", "sve2"],
]);
const governorFile = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

/** Returns the CPU's name in a form fit for a file name. */
export function machineName(): string {
  return hostFacts()
    .cpu.brand.toLowerCase()
    .replace(/\((?:r|tm)\)|processor|\bcpu\b|@.*$/g, "")
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
}

/** Returns one line: the CPU with its features, and the number of threads that may be used. */
export function machineLine(): string {
  const features = cpuFeatures();
  const cpu = features === "" ? hostFacts().cpu.brand : `${hostFacts().cpu.brand} (${features})`;
  return `${cpu}, ${os.availableParallelism()} cores, node ${process.versions.node}`;
}

/** Returns the description as a Markdown list. */
export function machineFacts(): string {
  const quota = ownCpuQuota();
  const facts = {
    CPU: hostFacts().cpu.brand,
    features: cpuFeatures() || "unknown",
    cores: `${physicalCores()}, of ${os.availableParallelism()} threads`,
    "CPU quota": Number.isFinite(quota) ? `${quota} cores` : "none",
    governor: governor(),
    memory: `${(os.totalmem() / 2 ** 30).toFixed(1)} GiB`,
    system: `${os.type()} ${os.release()}, ${os.arch()}`,
    Node: process.versions.node,
    commit: commit(),
    date: date(),
  };
  return Object.entries(facts)
    .map(([name, value]) => `- ${name}: ${value}`)
    .join("\n");
}

export function commit(): string {
  return execFileSync("git", ["rev-parse", "--short", "HEAD"], { encoding: "utf8" }).trim();
}

/** Returns the current date and time, to the minute. */
export function date(): string {
  return `${new Date().toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

function cpuFeatures(): string {
  return [...cpuFlags()].filter((flag) => telling.has(flag)).join(" ");
}

function governor(): string {
  try {
    return readFileSync(governorFile, "utf8").trim();
  } catch {
    return "unknown, as in most virtual machines";
  }
}
