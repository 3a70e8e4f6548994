// Sandbox: how child processes of tools are confined. This module has the interface; open-sandbox.ts chooses the isolation that
// the host offers.
import type { Readable, Writable } from "node:stream";

export type SandboxMode = "auto" | "on" | "off";
export type SandboxProfile = "developer" | "restricted";
export type SandboxNetwork = "none" | "loopback" | "full";

/** Settings of the sandbox, section [sandbox]. */
export interface SandboxSettings {
  readonly mode: SandboxMode;
  readonly profile: SandboxProfile;
  readonly network: SandboxNetwork;
  /** Memory of all processes of one confined command together, in MiB. */
  readonly maxMemoryMb: number;
  /** Processor time of one process, in seconds. */
  readonly maxCpuSecs: number;
  /** Number of processes and threads of one confined command. */
  readonly maxProcs: number;
  /** Size of the work folder and the temporary folder together, in MiB. */
  readonly maxDiskMb: number;
}

/** Isolation that the host offers. */
export interface IsolationReport {
  readonly kind: "bubblewrap" | "none";
  /** What is missing or weaker than it could be, as sentences that say what to do; empty: nothing. */
  readonly missing: readonly string[];
}

export interface ConfinedCommand {
  /** Program and arguments. The program is looked up inside the sandbox. */
  readonly argv: readonly [string, ...string[]];
  /** Folder on the host that the command may write; it is the current directory of the command. */
  readonly workFolder: string;
  /** Further environment variables. The server's own environment is never passed on. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Files or folders of the host that the command may read, in addition to the system's folders. */
  readonly readable?: readonly string[];
  /** Opens the file descriptor 3 of the command as a pipe from the server, and 4 as a pipe to the server. */
  readonly hasChannel?: boolean;
}

/** Why a confined command was ended by the sandbox; null: it was not. */
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
  /** Ends of the pipes of `hasChannel`; null without it. */
  readonly channel: { readonly toCommand: Writable; readonly fromCommand: Readable } | null;
  /** Resolves when the command and everything that it started have ended. Never rejects. */
  readonly exited: Promise<ConfinedExit>;
  /** Whether the limits of disk and memory are watched. A process that waits for input needs no watch. Initially true. */
  isWatched: boolean;
  /** Sends SIGINT to the command. */
  interrupt(): void;
  /** Kills the command and everything that it started, also daemons. Resolves when nothing is left. */
  kill(): Promise<void>;
}

export interface Sandbox {
  readonly isolation: IsolationReport;
  /** Starts a command. Throws a ServerError if it cannot be started. */
  launch(command: ConfinedCommand): ConfinedProcess;
  /** Kills all commands. */
  close(): Promise<void>;
}
