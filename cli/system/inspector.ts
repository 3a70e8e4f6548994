// System inspector: information about the operating system, the engines and the build, and a diagnosis, for the server and
// `troupe doctor`. The checks load native code and block a thread, so a server runs them in a child process.
import { readFileSync } from "node:fs";
import { type NativeHost, nativeHost } from "../../engines/llama/native/native-host.ts";
import { physicalCores } from "../../runtime/host/cores.ts";
import { isInstalled } from "../../runtime/host/optional-packages.ts";
import {
  type BuildFacts,
  type Diagnosis,
  hostFacts,
  type SystemInfo,
  type SystemInspector,
} from "../../runtime/host/system.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import { version } from "../version.ts";
import { type CheckOptions, runChecks } from "./checks.ts";

const checksModule = new URL("./checks-place.js", import.meta.url);
const checksLimitMs = 90_000;
const placeStopMs = 1000;
/** Time in ms for which a diagnosis is reused. */
const keptMs = 10_000;

/** Runs the checks in this process and blocks its thread. */
export async function diagnose(options: CheckOptions, host: NativeHost = nativeHost()): Promise<Diagnosis> {
  const system = await systemInfo(options, host);
  return { system, checks: await runChecks(options, system, host) };
}

/** Creates the inspector of a server. It runs `diagnose` in a child process; calls within keptMs share one result. */
export function systemInspector(options: CheckOptions): SystemInspector {
  const host = nativeHost();
  let latest: Promise<Diagnosis> | null = null;
  return {
    info: () => systemInfo(options, host),
    diagnose: () => {
      if (latest !== null) return latest;
      const found = diagnoseInChild(options);
      const forget = (): void => {
        if (latest === found) latest = null;
      };
      found.then(() => setTimeout(forget, keptMs).unref(), forget);
      latest = found;
      return found;
    },
  };
}

async function diagnoseInChild(init: CheckOptions): Promise<Diagnosis> {
  const place = await spawnPlace<CheckOptions, Diagnosis>({
    name: "doctor",
    module: checksModule,
    init,
    kind: "process",
    startTimeoutMs: checksLimitMs,
    onOutput: () => {},
  });
  void place.stop(placeStopMs);
  return place.ready;
}

/** Information that is read only once, because it does not change while the process runs; null if not read yet. */
let lasting: Pick<SystemInfo, "physicalCores" | "build"> | null = null;

async function systemInfo({ hubCache, engines }: CheckOptions, native: NativeHost): Promise<SystemInfo> {
  const host = hostFacts();
  const kind = await native.gpu();
  const gpus = (await native.devices()).map((device, ordinal) => ({ kind: kind ?? "gpu", ordinal, ...device }));
  const cpu = { kind: "cpu", ordinal: 0, name: host.cpu.brand, ...host.memory };
  lasting ??= { physicalCores: physicalCores(), build: buildFacts() };
  return { ...lasting, host, devices: [cpu, ...gpus], hubCache: hubCache ?? "", engines };
}

function buildFacts(): BuildFacts {
  const { platform, arch } = process;
  const cudaPackage = platform === "win32" ? `win-${arch}-cuda` : `linux-${arch}-cuda`;
  return {
    version,
    gitRevision: gitRevision(),
    cuda: isInstalled(`@node-llama-cpp/${cudaPackage}`),
    metal: platform === "darwin" && isInstalled("@node-llama-cpp/mac-arm64-metal"),
  };
}

/** Returns the commit of the git checkout; null if troupe was not installed from one. */
function gitRevision(): string | null {
  const read = (name: string): string => readFileSync(new URL(`../../../.git/${name}`, import.meta.url), "utf8").trim();
  try {
    const head = read("HEAD");
    return head.startsWith("ref: ") ? read(head.slice("ref: ".length)) : head;
  } catch {
    return null;
  }
}
