// Sandbox interface: confinement of the child processes of tools. open-sandbox.ts implements it with the isolation that the
// host offers.
import type { Readable, Writable } from "node:stream";

export type SandboxMode = "auto" | "on" | "off";
export type SandboxProfile = "developer" | "restricted";
export type SandboxNetwork = "none" | "loopback" | "full";

/** Settings of the sandbox, from the section [sandbox] of the configuration. */
export interface SandboxSettings {
  readonly mode: SandboxMode;
  readonly profile: SandboxProfile;
  readonly network: SandboxNetwork;
  /** Maximum memory of all processes of one confined command together, in MiB. */
  readonly maxMemoryMb: number;
  /** Maximum processor time of one process, in seconds. */
  readonly maxCpuSecs: number;
  /** Maximum number of processes and threads of one confined command. */
  readonly maxProcs: number;
  /**
   * Maximum size of the work folder and the temporary folder together, in MiB. If the work folder belongs to the user, its size
   * does not count. Instead, this limit applies to the size of the temporary folder, and to the amount of data that a command
   * adds to the file system of the work folder; for a service, within an hour.
   */
  readonly maxDiskMb: number;
}

/** Isolation that the host offers. */
export interface IsolationReport {
  readonly kind: "bubblewrap" | "none";
  /** Missing or weak parts of the isolation, as sentences with advice; empty if there are none. */
  readonly missing: readonly string[];
}

export interface ConfinedCommand {
  /** Program and arguments. The program is looked up inside the sandbox. */
  readonly argv: readonly [string, ...string[]];
  /** Folder on the host that the command may write; it is the current directory of the command. */
  readonly workFolder: string;
  /**
   * Folder on the host that is the command's /tmp; default: a new folder next to the work folder. Set it if the work folder
   * belongs to the user. Then nothing is created next to the work folder, the files already in it do not count against the disk
   * limit, and the command's home folder is its /tmp.
   */
  readonly temporaryFolder?: string;
  /** Further environment variables. The server's own environment is never passed on. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Files or folders of the host that the command may read, in addition to the system's folders. */
  readonly readable?: readonly string[];
  /**
   * Folders of the host that the command sees, read-only, at another path of the sandbox. Without isolation it sees them at
   * their own paths, and they are not protected.
   */
  readonly mounted?: readonly { readonly folder: string; readonly at: string }[];
  /** Whether the command runs for as long as the server. Such a command has no limit of processor time; default: false. */
  readonly isService?: boolean;
  /** Opens the file descriptor 3 of the command as a pipe from the server, and 4 as a pipe to the server. */
  readonly hasChannel?: boolean;
}

/** Limit at which the sandbox has ended a confined command; null if no limit was reached. */
export type LimitHit = "memory" | "disk" | "processes" | null;

export interface ConfinedExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly limit: LimitHit;
}

export interface ConfinedProcess {
  /** Path of the work folder as the command sees it. */
  readonly workFolder: string;
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Ends of the pipes that `hasChannel` requests; null if `hasChannel` is not set. */
  readonly channel: { readonly toCommand: Writable; readonly fromCommand: Readable } | null;
  /** Resolves when the command and all processes that it started have ended. Never rejects. */
  readonly exited: Promise<ConfinedExit>;
  /**
   * Whether the disk and memory limits are checked continuously. Not needed while the process waits for input. Initially true.
   */
  isWatched: boolean;
  /** Sends SIGINT to the command. */
  interrupt(): void;
  /** Kills the command and all processes that it started, including daemons. Resolves when all of them have ended. */
  kill(): Promise<void>;
}

export interface Sandbox {
  readonly isolation: IsolationReport;
  /** Starts a command. Throws a ServerError if it cannot be started. */
  launch(command: ConfinedCommand): ConfinedProcess;
  /** Kills all commands. */
  close(): Promise<void>;
}
