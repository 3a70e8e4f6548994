// Host of a place: a worker thread (worker-place.ts) or a child process (process-place.ts). It runs the place's entry point and
// can be killed. Used by place.ts.

import type { BaseEndpoint, Explain } from "../endpoint/base-endpoint.ts";
import type { DialTicket } from "./dial.ts";

/**
 * Maximum size in MiB of V8's semi-space in a place, which is half of the space for new objects. 16 is the default of Node 20. Node 24
 * lets it grow to 64, hours after the start too, so that each thread may take 128 MiB (bench/results/chaos.md).
 */
export const semiSpaceMiB = 16;

export interface HostOptions {
  readonly name: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly onOutput: (line: string) => void;
  /** Heap limit of a thread in MiB; null for Node's default. */
  readonly heapMiB: number | null;
  readonly explain: Explain;
}

/** How the thread or process ended. */
export interface HostExit {
  readonly code: number | null;
  readonly signal: string | null;
  /** Reason other than exit code and signal, such as a thread out of memory. */
  readonly fault: string | null;
}

/** A running worker thread or child process, as seen by its spawner. */
export interface Host {
  readonly endpoint: BaseEndpoint;
  readonly pid: number | null;
  /** Resolves when the thread or process has ended. Never rejects. */
  readonly gone: Promise<HostExit>;
  kill(): void;
  dial(): Promise<DialTicket>;
}
