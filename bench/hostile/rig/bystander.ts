// Bystander: a well-behaved client whose waiting times show how much an attack delays other clients. It runs in a separate
// process because the attackers keep the event loop of this process busy.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { median } from "../../../cli/bench/report.ts";

export interface BystanderSetup {
  readonly url: string;
  /** API key by which the server distinguishes the bystander from the attackers. */
  readonly key: string;
  /**
   * Which schemas the bystander also sends: none, a new one with each request, or mostly the same one and sometimes a new one.
   */
  readonly schemas: "none" | "new" | "mostly known";
}

export interface Waits {
  /** Waiting time of each completed request, in milliseconds. */
  readonly doneMs: readonly number[];
  /** Waiting time of the current request so far; 0 if there is none. */
  readonly pendingMs: number;
  /** Number of failed requests by status or error. */
  readonly failures: Readonly<Record<string, number>>;
  /** Longest waiting time of a failed request; 0 if none failed. */
  readonly failedMs: number;
}

/** Observations since the last call of take(). */
export interface Observations {
  readonly chats: Waits;
  readonly schemaChats: Waits;
  readonly knownSchemaChats: Waits;
  readonly healths: Waits;
}

export class Bystander {
  readonly #child: ChildProcess;

  constructor(setup: BystanderSetup) {
    const program = new URL("./bystander-process.js", import.meta.url);
    this.#child = fork(program, [JSON.stringify(setup)], { execArgv: [] });
  }

  async take(): Promise<Observations> {
    const answer = once(this.#child, "message");
    this.#child.send("take");
    return (await answer)[0] as Observations;
  }

  async stop(): Promise<void> {
    const ended = once(this.#child, "exit");
    this.#child.disconnect();
    await ended;
  }
}

/** Returns the longest wait, including failed and still running requests. */
export function worstMs({ doneMs, pendingMs, failedMs }: Waits): number {
  return Math.max(pendingMs, failedMs, ...doneMs);
}

export function medianMs({ doneMs }: Waits): number {
  return median(doneMs);
}

/** Formats the failures, such as "2 x 429, 1 x ECONNRESET"; "" if there are none. */
export function failuresOf({ failures }: Waits): string {
  return Object.entries(failures)
    .map(([name, count]) => `${count} x ${name}`)
    .join(", ");
}
