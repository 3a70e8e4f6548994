// Confined process: a running command with its limits. All its processes end together: with the PID namespace of the sandbox,
// or with their process group if there is no sandbox.
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import type { ControlGroup } from "./linux/control-group.ts";
import type { ConfinedExit, ConfinedProcess, LimitHit, SandboxSettings } from "./sandbox.ts";
import {
  activityOf,
  deletedBytes,
  diskUsage,
  freeBytes,
  memoryOf,
  processTree,
  threadCount,
  writtenBytes,
} from "./usage.ts";

/** Maximum number of files and folders in the work folder and the temporary folder together. */
export const maxEntries = 65_536;
/**
 * Free disk space in bytes below which a command may be ended. It is ended only if the free space has also decreased by
 * more than the command's disk limit since its start.
 */
const RESERVE_BYTES = 2 ** 30;
const MIB = 2 ** 20;
/** Period in ms in which a command that runs for as long as the server may add as much to the user's folder as its disk limit. */
const SERVICE_PERIOD_MS = 3_600_000;
const WATCH_MS = 100;
/**
 * Check interval in ms for a command that waits for input. Only its background activity is checked, such as threads and
 * children.
 */
const IDLE_WATCH_MS = 2000;
/** Maximum fraction of the thread's time for the checks of all its processes together. */
const WATCH_SHARE = 0.1;
/** Processes of this thread whose last check was a full one. */
const checked = new Set<RunningProcess>();
const GONE_POLL_MS = 2;
const GONE_LIMIT_MS = 2000;

export interface StartOptions {
  readonly file: string;
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly currentFolder: string;
  /** Path of the work folder as the command sees it. */
  readonly workFolder: string;
  readonly hasChannel: boolean;
  /**
   * File descriptors that the command inherits in addition to its pipes, for example the descriptor of the seccomp filter. In
   * the command, their numbers follow the numbers of the pipes.
   */
  readonly extra: readonly number[];
  /** Whether the last descriptor is a pipe on which bubblewrap reports the process id of the command. */
  readonly hasStatus: boolean;
  readonly group: ControlGroup | null;
  readonly settings: SandboxSettings;
  /** Folders whose sizes count against the disk limit. */
  readonly folders: readonly [string, ...string[]];
  /**
   * Work folder of the user; null if there is none. The decrease of the free space on its file system counts against the disk
   * limit. The size of the folder does not count, because the folder contains the user's files, possibly too many to be counted
   * at each check.
   */
  readonly userFolder: string | null;
  /** Whether the command runs for as long as the server; see SERVICE_PERIOD_MS. */
  readonly isService: boolean;
}

export class RunningProcess implements ConfinedProcess {
  readonly workFolder: string;
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly channel: ConfinedProcess["channel"];
  readonly exited: Promise<ConfinedExit>;
  readonly #child: ChildProcess;
  readonly #options: StartOptions;
  /** Process id of the command on the host, if it is in the sandbox; null if it is not known yet, or if there is no sandbox. */
  #innerPid: number | null = null;
  #limit: LimitHit = null;
  /** Whether the command has reached its process limit, so that the kernel refuses further processes (RLIMIT_NPROC). */
  #wasOutOfProcesses = false;
  #isWatched = true;
  #timer: NodeJS.Timeout | null = null;
  #hasExited = false;
  /**
   * Free bytes on the file systems of the temporary folder and of the user's folder, and bytes written by the command, when the command
   * began to work, or when the current period of a service began.
   */
  #freeAtStart: number;
  #userFreeAtStart: number;
  #writtenAtStart = 0;
  /** Time at which the period of a service began, in ms of performance.now(). */
  #periodMs = performance.now();
  /** Activity at the last check while the command waited for input; see activityOf. */
  #activity: string | null = null;

  constructor(options: StartOptions) {
    this.#options = options;
    this.workFolder = options.workFolder;
    const pipes = options.hasChannel ? (["pipe", "pipe"] as const) : [];
    this.#child = spawn(options.file, options.args, {
      cwd: options.currentFolder,
      env: { ...options.environment },
      // A separate process group, so that all processes of the command can be killed together.
      detached: true,
      stdio: ["pipe", "pipe", "pipe", ...pipes, ...options.extra, ...(options.hasStatus ? (["pipe"] as const) : [])],
    });
    this.#child.on("error", () => {}); // This event is also emitted if a signal cannot be sent.
    if (this.#child.pid === undefined) throw new Error("the system has no room for another process or open file");
    const { stdin, stdout, stderr, stdio } = this.#child;
    this.stdin = stdin as Writable;
    this.stdout = stdout as Readable;
    this.stderr = stderr as Readable;
    this.channel = options.hasChannel
      ? { toCommand: stdio[3] as unknown as Writable, fromCommand: stdio[4] as unknown as Readable }
      : null;
    for (const stream of [this.stdin, this.channel?.toCommand]) stream?.on("error", () => {});
    if (options.hasStatus) this.#readStatus(stdio.at(-1) as unknown as Readable);
    this.#freeAtStart = freeBytes(options.folders[0]);
    this.#userFreeAtStart = this.#userFree();
    this.exited = this.#ended();
    this.#watch(WATCH_MS);
  }

  get isWatched(): boolean {
    return this.#isWatched;
  }

  set isWatched(isWatched: boolean) {
    // A Python session may wait for hours while other programs use the disk. So the disk use of a cell is counted from
    // the start of the cell.
    if (isWatched && !this.#isWatched) this.#userFreeAtStart = this.#userFree();
    this.#isWatched = isWatched;
    this.#watch(isWatched ? WATCH_MS : IDLE_WATCH_MS);
  }

  interrupt(): void {
    this.#signal("SIGINT");
  }

  async kill(): Promise<void> {
    this.#signal("SIGKILL");
    await this.exited;
  }

  #readStatus(status: Readable): void {
    let text = "";
    status.on("error", () => {});
    status.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
      const found = /"child-pid":\s*(\d+)/.exec(text)?.[1];
      if (found === undefined) return;
      this.#innerPid = Number(found);
      // Only the first report is read, so that the command cannot name another process.
      status.removeAllListeners("data").resume();
    });
  }

  /**
   * Sends SIGINT to the command, or SIGKILL to all its processes. In a sandbox, the command is the first process of its
   * namespace, so its end kills all others. Without a sandbox, all processes are in the command's process group.
   */
  #signal(signal: "SIGINT" | "SIGKILL"): void {
    const { pid } = this.#child;
    // No signal is sent after the end of the process, because the system may have given its id to another process.
    if (pid === undefined || this.#hasExited) return;
    if (signal === "SIGINT") {
      send(this.#innerPid ?? pid, signal);
      return;
    }
    if (this.#innerPid !== null) send(this.#innerPid, signal);
    send(-pid, signal);
  }

  async #ended(): Promise<ConfinedExit> {
    const { group } = this.#options;
    const ended = await new Promise<Omit<ConfinedExit, "limit">>((resolve) => {
      this.#child.once("exit", (code, signal) => resolve({ code, signal }));
    });
    this.#hasExited = true;
    checked.delete(this);
    if (this.#timer !== null) clearTimeout(this.#timer);
    const { pid } = this.#child;
    // Without a sandbox, processes that the command has started may still run in its process group.
    if (pid !== undefined) send(-pid, "SIGKILL");
    if (this.#innerPid !== null) await gone(this.#innerPid);
    if (group?.wasOutOfMemory) this.#limit ??= "memory";
    const wasOutOfProcesses = this.#wasOutOfProcesses || (group?.wasOutOfProcesses ?? false);
    if (wasOutOfProcesses && ended.code !== 0) this.#limit ??= "processes";
    group?.remove();
    return { ...ended, limit: this.#limit };
  }

  #watch(delayMs: number): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    if (this.#hasExited) return;
    this.#timer = setTimeout(() => {
      const startedAt = performance.now();
      const root = this.#innerPid ?? this.#child.pid;
      const isActive = root !== undefined && (this.#isWatched || this.#wasActive(root));
      if (isActive) {
        checked.add(this);
        this.#check(root);
      } else checked.delete(this);
      const spentMs = performance.now() - startedAt;
      this.#watch(Math.max(isActive ? WATCH_MS : IDLE_WATCH_MS, (checked.size * spentMs) / WATCH_SHARE));
    }, delayMs).unref();
  }

  /** Returns whether the command was active since the last call, although it waits for input. */
  #wasActive(root: number): boolean {
    const before = this.#activity;
    this.#activity = activityOf(root);
    return this.#activity === null || this.#activity !== before;
  }

  #check(root: number): void {
    const { settings, group, folders, isService } = this.#options;
    const processes = processTree(root);
    if (isService && performance.now() - this.#periodMs > SERVICE_PERIOD_MS) this.#beginPeriod(processes);
    const limit = { bytes: settings.maxDiskMb * MIB, entries: maxEntries };
    const { bytes, entries } = diskUsage(folders, limit);
    const isOver = bytes > limit.bytes || entries > limit.entries;
    // The decrease of the free space counts only if the command itself has written more than the limit, because other programs
    // use the disk too.
    const hasGrown =
      this.#userFreeAtStart - this.#userFree() > limit.bytes &&
      writtenBytes(processes) - this.#writtenAtStart > limit.bytes;
    const isExhausting = this.#exhaustsDisk(limit.bytes);
    if (isOver || hasGrown || bytes + deletedBytes(processes, folders[0]) > limit.bytes || isExhausting)
      this.#hit("disk");
    const maxBytes = settings.maxMemoryMb * MIB;
    if (group?.limitsMemory ? group.wasOutOfMemory : memoryOf(processes, maxBytes) > maxBytes) this.#hit("memory");
    if (group?.limitsProcesses) return;
    const threads = threadCount(processes);
    if (threads > settings.maxProcs + 1) this.#hit("processes");
    else if (threads >= settings.maxProcs) this.#wasOutOfProcesses = true;
  }

  /** Other programs use the disk too, and within days even a harmless command writes more than the limit. */
  #beginPeriod(processes: readonly number[]): void {
    const written = writtenBytes(processes);
    this.#freeAtStart = freeBytes(this.#options.folders[0]);
    this.#userFreeAtStart = this.#userFree();
    this.#writtenAtStart = Number.isFinite(written) ? written : 0;
    this.#periodMs = performance.now();
  }

  /**
   * Returns whether the disk is nearly full and its free bytes have decreased by more than the limit since the start. Code can
   * hide deleted files from the other checks, for example in a socket.
   */
  #exhaustsDisk(limitBytes: number): boolean {
    const { folders, userFolder } = this.#options;
    const used = (free: number, atStart: number) => free < RESERVE_BYTES && atStart - free > limitBytes;
    if (userFolder !== null && used(this.#userFree(), this.#userFreeAtStart)) return true;
    return used(freeBytes(folders[0]), this.#freeAtStart);
  }

  /**
   * Returns the free bytes on the file system of the user's folder; NaN if there is no such folder, or if the number is
   * unknown.
   */
  #userFree(): number {
    const { userFolder } = this.#options;
    const free = userFolder === null ? Number.NaN : freeBytes(userFolder);
    return Number.isFinite(free) ? free : Number.NaN;
  }

  #hit(limit: LimitHit): void {
    this.#limit ??= limit;
    this.#signal("SIGKILL");
  }
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // The process has ended.
  }
}

/** Waits until a process has ended. A zombie, whose parent has not read its exit status yet, counts as ended. */
async function gone(pid: number): Promise<void> {
  const until = performance.now() + GONE_LIMIT_MS;
  while (isRunning(pid) && performance.now() < until) {
    await new Promise((resolve) => setTimeout(resolve, GONE_POLL_MS));
  }
}

function isRunning(pid: number): boolean {
  try {
    // The state follows the name of the program, which is in parentheses.
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return !/^ [ZX]/.test(stat.slice(stat.lastIndexOf(")") + 1));
  } catch {
    return false;
  }
}
