// Sandbox of the host: bubblewrap on Linux, if the host allows it. With mode `off`, or with mode `auto` on a host without
// bubblewrap, commands run without isolation, but with a minimal environment, limits and a separate process group.
import { closeSync, mkdirSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { ServerError } from "../errors.ts";
import { createProcessFolder } from "../host/process-folder.ts";
import { RunningProcess } from "./confined-process.ts";
import { findProgram, type HostIsolation, inspectIsolation, withoutIsolation } from "./host-isolation.ts";
import { endAbandonedBubblewraps } from "./linux/abandoned.ts";
import {
  baseEnvironment,
  bubblewrapArguments,
  type CommonArguments,
  commonArguments,
  innerWorkFolder,
  temporaryFolderOf,
} from "./linux/bubblewrap.ts";
import { ControlGroup, type GroupRoots, groupRoots, removeAbandonedGroups } from "./linux/control-group.ts";
import type { ConfinedCommand, ConfinedProcess, IsolationReport, Sandbox, SandboxSettings } from "./sandbox.ts";

const MIB = 2 ** 20;
const FOLDER_KIND = "sandbox";
const MAX_OPEN_FILES = 1024;
/**
 * Limit on the writable private memory of one process, as a multiple of the memory limit. It is above 1, because programs
 * reserve more memory than they use.
 */
const DATA_FACTOR = 2;
const cpuLimit = "--cpu=";
const fileSizeLimit = "--fsize=";
/** Exit code of a command that could not enter its control group. */
const CANNOT_CONFINE = 126;

/** Opens the sandbox. Throws config_invalid if the mode is `on` and the host offers no isolation. */
export function openSandbox(
  settings: SandboxSettings,
  warn: (fields: object, message: string) => void,
  inspect: () => HostIsolation = inspectIsolation,
): Sandbox {
  if (settings.mode === "off") {
    return new HostSandbox(settings, withoutIsolation("the sandbox is off (sandbox.mode)"));
  }
  const isolation = inspect();
  if (isolation.kind !== "none") return new HostSandbox(settings, isolation);
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
  readonly #confinement: (CommonArguments & { readonly bwrap: string }) | null;
  readonly #limits: readonly string[];
  readonly #roots: GroupRoots | null;
  readonly #running = new Set<ConfinedProcess>();

  constructor(settings: SandboxSettings, isolation: HostIsolation) {
    const { kind, missing, bwrap } = isolation;
    this.isolation = { kind, missing };
    this.#settings = settings;
    endAbandonedBubblewraps(FOLDER_KIND);
    this.#folder = createProcessFolder(FOLDER_KIND, [tmpdir()]);
    this.#roots = groupRoots();
    if (this.#roots !== null) removeAbandonedGroups(this.#roots);
    this.#limits = limitsOf(settings, kind !== "none");
    this.#confinement =
      bwrap === null ? null : { ...commonArguments({ settings, folder: this.#folder, isolation }), bwrap };
  }

  launch(command: ConfinedCommand): ConfinedProcess {
    let group: ControlGroup | null = null;
    try {
      mkdirSync(temporaryFolderOf(command), { recursive: true, mode: 0o700 });
      group = this.#group();
      const running = this.#start(command, group);
      this.#running.add(running);
      void running.exited.then(() => this.#running.delete(running));
      return running;
    } catch (error) {
      group?.remove();
      const reason = error instanceof Error ? error.message : String(error);
      throw new ServerError("storage_unavailable", `a command of a tool could not be started: ${reason}`);
    }
  }

  #start(command: ConfinedCommand, group: ControlGroup | null): ConfinedProcess {
    const { workFolder, hasChannel = false, environment = {}, isService = false } = command;
    const temporary = temporaryFolderOf(command);
    const isUsers = command.temporaryFolder !== undefined;
    const counted = isUsers
      ? ({ folders: [temporary], userFolder: workFolder } as const)
      : ({ folders: [workFolder, temporary], userFolder: null } as const);
    const options = { hasChannel, group, settings: this.#settings, isService, ...counted } as const;
    // A file of the user may be larger than the disk limit before the command changes it.
    const unlimited = [...(isService ? [cpuLimit] : []), ...(isUsers ? [fileSizeLimit] : [])];
    const isLimited = (limit: string): boolean => !unlimited.some((name) => limit.startsWith(name));
    const inner = [...this.#limits.filter(isLimited), ...command.argv];
    if (this.#confinement === null) {
      const [file = "", ...args] = group === null ? inner : inGroup(group, inner);
      const variables = { ...baseEnvironment(isUsers ? temporary : workFolder, temporary), ...environment };
      const place = { environment: variables, currentFolder: workFolder, workFolder, extra: [], hasStatus: false };
      return new RunningProcess({ ...options, ...place, file, args });
    }
    const { bwrap, filter, through } = this.#confinement;
    const filterFd = filter === null ? null : openSync(filter, "r");
    try {
      const seccompFd = filterFd === null ? null : hasChannel ? 5 : 3;
      const statusFd = (hasChannel ? 5 : 3) + (filterFd === null ? 0 : 1);
      const argv = [
        bwrap,
        ...bubblewrapArguments(this.#confinement, command, { seccompFd, statusFd }),
        ...["--", ...through],
        // Close bwrap's status descriptor, because bwrap leaves it open in the command.
        ...["/bin/sh", "-c", `exec ${statusFd}>&-; exec "$@"`, "sh"],
        ...inner,
      ];
      const [file = "", ...args] = group === null ? argv : inGroup(group, argv);
      // bwrap passes its own environment to the command, so bwrap gets an empty environment.
      const place = { environment: {}, currentFolder: "/", workFolder: innerWorkFolder, hasStatus: true };
      const extra = filterFd === null ? [] : [filterFd];
      return new RunningProcess({ ...options, ...place, extra, file, args });
    } finally {
      if (filterFd !== null) closeSync(filterFd);
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#running].map((running) => running.kill()));
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #group(): ControlGroup | null {
    if (this.#roots === null) return null;
    const { maxMemoryMb, maxProcs } = this.#settings;
    // bwrap itself adds two processes to the group.
    return ControlGroup.create(this.#roots, { memoryBytes: maxMemoryMb * MIB, processes: maxProcs + 2 });
  }
}

/**
 * Returns a prlimit command that limits each process. These limits apply in addition to the limits of the control group or of
 * the watcher.
 */
function limitsOf(
  { maxMemoryMb, maxCpuSecs, maxDiskMb, maxProcs }: SandboxSettings,
  isIsolated: boolean,
): readonly string[] {
  const prlimit = findProgram("prlimit");
  if (prlimit === null) return [];
  return [
    prlimit,
    "--core=0",
    `--nofile=${MAX_OPEN_FILES}`,
    `${fileSizeLimit}${maxDiskMb * MIB}`,
    `${cpuLimit}${maxCpuSecs}:${maxCpuSecs + 5}`,
    // The address space is not limited, because WebAssembly reserves 10 GiB of it per module.
    `--data=${DATA_FACTOR * maxMemoryMb * MIB}`,
    // The number of processes is limited only in a user namespace, because elsewhere the kernel counts all processes of the user.
    ...(isIsolated ? [`--nproc=${maxProcs}`] : []),
    "--",
  ];
}

/** Returns a command that enters the control group and then executes the given command. */
function inGroup(group: ControlGroup, argv: readonly string[]): readonly string[] {
  const count = group.entries.length;
  const enter = Array.from({ length: count }, (_, i) => `echo $$ > "$${i + 1}"`).join(" && ");
  const script = `{ ${enter}; } || exit ${CANNOT_CONFINE}; shift ${count}; exec "$@"`;
  return ["/bin/sh", "-c", script, "sh", ...group.entries, ...argv];
}
