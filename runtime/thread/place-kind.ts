// Owns what a spawner needs of a carrier: something that runs a place's entry and can be killed. worker-place.ts and
// process-place.ts implement it; place.ts alone uses it.

import type { BaseEndpoint, Explain } from "../endpoint/base-endpoint.ts";
import type { DialTicket } from "./dial.ts";

export interface HostOptions {
  readonly name: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly onOutput: (line: string) => void;
  /** Of a thread; null is what the runtime gives it. */
  readonly heapMiB: number | null;
  readonly explain: Explain;
}

/** How the thread or process itself ended. */
export interface HostExit {
  readonly code: number | null;
  readonly signal: string | null;
  /** What the carrier knows beyond code and signal, such as a thread out of memory. */
  readonly fault: string | null;
}

/** A running worker thread or child process, as its spawner sees it. */
export interface Host {
  readonly link: BaseEndpoint;
  readonly pid: number | null;
  /** Never rejects. */
  readonly gone: Promise<HostExit>;
  kill(): void;
  dial(): Promise<DialTicket>;
}
