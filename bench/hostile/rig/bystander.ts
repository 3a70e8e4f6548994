// Bystander: the process of a well-behaved client, and what it has to wait for while another client attacks. It is a process
// of its own since the event loop of the attackers is busy.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { median } from "../../../cli/bench/report.ts";

export interface BystanderSetup {
  readonly url: string;
  /** API key, by which the server tells it from the attackers. */
  readonly key: string;
  /** It also asks for answers that fit a schema: a new one each time, or the same one and now and then a new one. */
  readonly schemas: "none" | "new" | "mostly known";
}

export interface Waits {
  /** Milliseconds each answered request waited. */
  readonly doneMs: readonly number[];
  /** How long the request under way has waited so far; 0 if there is none. */
  readonly pendingMs: number;
  /** Requests that failed, by status or error. */
  readonly failures: Readonly<Record<string, number>>;
  /** Longest wait of one that failed; 0 if none did. */
  readonly failedMs: number;
}

/** What was observed since the last call of take(). */
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

/** Longest wait, also of requests that failed or are still running. */
export function worstMs({ doneMs, pendingMs, failedMs }: Waits): number {
  return Math.max(pendingMs, failedMs, ...doneMs);
}

export function medianMs({ doneMs }: Waits): number {
  return median(doneMs);
}

/** "2 x 429, 1 x ECONNRESET"; "" where none failed. */
export function failuresOf({ failures }: Waits): string {
  return Object.entries(failures)
    .map(([name, count]) => `${count} x ${name}`)
    .join(", ");
}
