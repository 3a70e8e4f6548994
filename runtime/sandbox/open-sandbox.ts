// Opens the sandbox: bubblewrap on Linux if the host allows it; otherwise, with mode `auto` or `off`, commands run without
// isolation, with a scrubbed environment, limits and a process group of their own.
import { spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { ServerError } from "../errors.ts";
import {
  baseEnvironment,
  bubblewrapArguments,
  innerWorkFolder,
  prepareFolder,
  temporaryFolderOf,
} from "./bubblewrap.ts";
import { RunningProcess } from "./confined-process.ts";
import { ControlGroup, type GroupRoots, groupRoots } from "./control-group.ts";
import type { ConfinedCommand, ConfinedProcess, IsolationReport, Sandbox, SandboxSettings } from "./sandbox.ts";
import { seccompProgram } from "./seccomp.ts";

const MIB = 2 ** 20;
const PROBE_MS = 10_000;
const MAX_OPEN_FILES = 1024;
/** Address space of one process, as a multiple of the memory limit: programs reserve more than they use. */
const ADDRESS_SPACE_FACTOR = 4;

/** Returns what isolation this host offers. */
export function inspectIsolation(bwrap: string | null = findProgram("bwrap")): IsolationReport {
  if (process.platform !== "linux") {
    return {
      kind: "none",
      missing: [`tools run without isolation on ${process.platform}: it is built for Linux only`],
    };
  }
  if (bwrap === null) {
    const install = "install it with the system's package manager, for example: apt-get install bubblewrap";
    return { kind: "none", missing: [`bubblewrap (bwrap) is not installed; ${install}`] };
  }
  const probe = spawnSync(
    bwrap,
    ["--unshare-all", "--unshare-user", "--as-pid-1", "--ro-bind", "/", "/", "/bin/sh", "-c", ":"],
    {
      timeout: PROBE_MS,
    },
  );
  if (probe.status !== 0) {
    const said = String(probe.stderr).trim().split("\n").at(-1) ?? "";
    const hint =
      "the kernel or the container must allow user namespaces (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces)";
    return { kind: "none", missing: [`bubblewrap cannot create its namespaces (${said}); ${hint}`] };
  }
  const missing: string[] = [];
  if (seccompProgram({ allowsInternet: true }) === null) {
    missing.push(`there is no system call filter for ${process.arch}; the namespaces still isolate`);
  }
  const roots = groupRoots();
  if (roots?.memory == null || roots.processes == null) {
    missing.push(
      "no control group can be created, so limits of memory and processes are enforced by watching, with a delay of 0.1 s; delegate a cgroup to the server (systemd: Delegate=yes)",
    );
  }
  if (findProgram("prlimit") === null)
    missing.push("prlimit (util-linux) is not installed, so single processes have no limits");
  return { kind: "bubblewrap", missing };
}

/** Opens the sandbox. Throws config_invalid if the mode is `on` and the host offers no isolation. */
export function openSandbox(
  settings: SandboxSettings,
  warn: (fields: object, message: string) => void,
  inspect: () => IsolationReport = inspectIsolation,
): Sandbox {
  if (settings.mode === "off")
    return new HostSandbox(settings, { kind: "none", missing: ["the sandbox is off (sandbox.mode)"] });
  const isolation = inspect();
  if (isolation.kind === "bubblewrap") return new HostSandbox(settings, isolation);
  const [reason = ""] = isolation.missing;
  if (settings.mode === "on") {
    throw new ServerError(
      "config_invalid",
      `sandbox.mode = "on" expects isolation, which this host does not offer: ${reason}`,
      {
        param: "mode",
      },
    );
  }
  warn({ reason }, "tools run without isolation: they can read and write what the server can; do not serve strangers");
  return new HostSandbox(settings, isolation);
}

class HostSandbox implements Sandbox {
  readonly isolation: IsolationReport;
  readonly #settings: SandboxSettings;
  readonly #folder: string;
  readonly #filter: string | null;
  readonly #roots: GroupRoots | null;
  readonly #running = new Set<ConfinedProcess>();
  #count = 0;

  constructor(settings: SandboxSettings, isolation: IsolationReport) {
    this.isolation = isolation;
    this.#settings = settings;
    this.#folder = mkdtempSync(join(tmpdir(), "troupe-sandbox-"));
    prepareFolder(this.#folder);
    this.#roots = groupRoots();
    const program = seccompProgram({ allowsInternet: settings.network !== "none" });
    this.#filter = isolation.kind === "none" || program === null ? null : join(this.#folder, "filter");
    if (this.#filter !== null && program !== null) writeFileSync(this.#filter, program);
  }

  launch(command: ConfinedCommand): ConfinedProcess {
    const isIsolated = this.isolation.kind === "bubblewrap";
    const { workFolder, hasChannel = false, environment = {} } = command;
    const temporary = temporaryFolderOf(workFolder);
    mkdirSync(temporary, { recursive: true, mode: 0o700 });
    const filter = isIsolated && this.#filter !== null ? openSync(this.#filter, "r") : null;
    const group = this.#group();
    const firstFree = hasChannel ? 5 : 3;
    const statusFd = firstFree + (filter === null ? 0 : 1);
    const inner = [...this.#limits(), ...command.argv];
    // bwrap leaves its status descriptor open in the command.
    const closing = ["/bin/sh", "-c", `exec ${statusFd}>&-; exec "$@"`, "sh"];
    const argv = isIsolated
      ? [
          findProgram("bwrap") ?? "bwrap",
          ...bubblewrapArguments({ settings: this.#settings, folder: this.#folder }, command, {
            seccompFd: filter === null ? null : firstFree,
            statusFd,
          }),
          "--",
          ...closing,
          ...inner,
        ]
      : inner;
    const [file = "", ...args] = group === null ? argv : inGroup(group, argv);
    try {
      const running: ConfinedProcess = new RunningProcess({
        file,
        args,
        // bwrap clears its own environment; it needs none.
        environment: isIsolated ? {} : { ...baseEnvironment(workFolder, temporary), ...environment },
        currentFolder: isIsolated ? "/" : workFolder,
        workFolder: isIsolated ? innerWorkFolder : workFolder,
        hasChannel,
        extra: filter === null ? [] : [filter],
        hasStatus: isIsolated,
        group,
        settings: this.#settings,
        folders: [workFolder, temporary],
        onExit: () => void this.#running.delete(running),
      });
      this.#running.add(running);
      return running;
    } finally {
      if (filter !== null) closeSync(filter);
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#running].map((running) => running.kill()));
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #group(): ControlGroup | null {
    if (this.#roots === null) return null;
    const { maxMemoryMb, maxProcs } = this.#settings;
    const name = `troupe-${process.pid}-${this.#folder.slice(-6)}-${this.#count++}`;
    // bwrap itself is two processes of the group.
    return ControlGroup.create(this.#roots, name, { memoryBytes: maxMemoryMb * MIB, processes: maxProcs + 2 });
  }

  /** Limits of single processes. They hold in addition to those of the group, or of the watcher. */
  #limits(): readonly string[] {
    const prlimit = findProgram("prlimit");
    if (prlimit === null) return [];
    const { maxMemoryMb, maxCpuSecs, maxDiskMb, maxProcs } = this.#settings;
    return [
      prlimit,
      "--core=0",
      `--nofile=${MAX_OPEN_FILES}`,
      `--fsize=${maxDiskMb * MIB}`,
      `--cpu=${maxCpuSecs}:${maxCpuSecs + 5}`,
      `--as=${ADDRESS_SPACE_FACTOR * maxMemoryMb * MIB}`,
      ...(this.isolation.kind === "bubblewrap" ? [`--nproc=${maxProcs}`] : []),
      "--",
    ];
  }
}

/** Returns a command that enters the group before it becomes the given one. */
function inGroup(group: ControlGroup, argv: readonly string[]): readonly string[] {
  const count = group.entries.length;
  const enter = Array.from({ length: count }, (_, i) => `echo $$ > "$${i + 1}"`).join(" && ");
  return ["/bin/sh", "-c", `${enter}; shift ${count}; exec "$@"`, "sh", ...group.entries, ...argv];
}

function findProgram(name: string): string | null {
  const folders = [...(process.env.PATH ?? "").split(delimiter), "/usr/bin", "/bin"];
  return folders.map((folder) => join(folder, name)).find((path) => path.startsWith("/") && existsSync(path)) ?? null;
}
