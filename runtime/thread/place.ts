// Place, from its spawner's side: start with a time limit, progress, dialling, orderly stop, and the reason of its end. Its inside
// is entry.ts.

import type { Endpoint, PeerExit } from "../endpoint/endpoint.ts";
import { fromErrorRecord, ServerError } from "../errors.ts";
import { writeStderr } from "../log/stderr.ts";
import { type Command, controlChannel, type Report } from "./control.ts";
import type { DialTicket } from "./dial.ts";
import type { Host, HostExit } from "./place-kind.ts";
import { startProcess } from "./process-place.ts";
import { startThread } from "./worker-place.ts";

/** How long a thread or process may outlive its endpoint before it is killed. */
const lingerMs = 1000;
/** Pings within the time limit of a watched place. */
const pingsPerLimit = 5;

export type PlaceKind = "thread" | "process";

export interface PlaceOptions<Init> {
  readonly name: string;
  /** A compiled module; its `start` (see StartPlace in entry.ts) runs inside. */
  readonly module: URL;
  /** Plain data for `start`. */
  readonly init: Init;
  readonly carrier: PlaceKind;
  readonly startTimeoutMs: number;
  /** After its start, the place is killed if its event loop blocks for this long; absent: never. */
  readonly answersWithinMs?: number;
  /** Most MiB of its JavaScript heap; only for a thread. */
  readonly heapMiB?: number;
  /** Aborts the start: the place is killed and spawnPlace rejects with `cancelled`. */
  readonly signal?: AbortSignal;
  /** Receives the values that the place passes to `progress`, at any time. */
  readonly onProgress?: (value: unknown) => void;
  /** Added to the inherited variables. A process does not inherit variables with names of secrets. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Receives the lines that the place prints; absent: written to our stderr. */
  readonly onOutput?: (line: string) => void;
}

export interface Place<Ready> {
  readonly name: string;
  /** Result of `start`. */
  readonly ready: Ready;
  /** The spawner's endpoint to the place. */
  readonly endpoint: Endpoint;
  /** Resolves when the thread or process has ended. Never rejects. */
  readonly exit: Promise<PeerExit>;
  /** The child's process id; null for a thread. */
  readonly pid: number | null;
  /** A ticket with which another thread connects to this place. */
  dial(): Promise<DialTicket>;
  /** Runs the place's stop hooks and ends it; kills it at the deadline. */
  stop(deadlineMs: number): Promise<PeerExit>;
  kill(): void;
}

/**
 * Starts a place and waits for its `start`. Rejects with the ServerError thrown by start(), or with `timeout`, `cancelled` or
 * `peer_gone`; the place has ended then.
 */
export async function spawnPlace<Init, Ready>(options: PlaceOptions<Init>): Promise<Place<Ready>> {
  const host = new PlaceHost(options);
  try {
    const ready = (await host.started(options)) as Ready;
    if (options.answersWithinMs !== undefined) host.watch(options.answersWithinMs);
    return {
      name: options.name,
      ready,
      endpoint: host.endpoint,
      exit: host.endpoint.exit,
      pid: host.pid,
      dial: () => host.dial(),
      stop: (deadlineMs) => host.stop(deadlineMs),
      kill: () => host.kill("killed by its spawner"),
    };
  } catch (error) {
    host.kill("it did not start");
    await host.endpoint.exit;
    throw error;
  }
}

class PlaceHost<Init> {
  readonly #host: Host;
  /** Reason if this side ended the place; the first one counts. */
  #verdict: string | null = null;
  #lastReport: Report["kind"] | null = null;
  #crash: string | null = null;
  /** Pings in a row without a pong. */
  #unanswered = 0;

  constructor(options: PlaceOptions<Init>) {
    const start = options.carrier === "thread" ? startThread : startProcess;
    this.#host = start({
      name: options.name,
      environment: options.environment ?? {},
      onOutput: options.onOutput ?? ((line) => writeStderr(`${line}\n`)),
      heapMiB: options.heapMiB ?? null,
      explain: (loss, isFailure) => this.#explain(loss, isFailure),
    });
  }

  get endpoint(): Endpoint {
    return this.#host.endpoint;
  }

  get pid(): number | null {
    return this.#host.pid;
  }

  /** Resolves with the result of start(). */
  async started(options: PlaceOptions<Init>): Promise<unknown> {
    const { name, init, startTimeoutMs, signal } = options;
    let giveUp: () => void = () => {};
    const outcome = new Promise<unknown>((resolve, reject) => {
      this.endpoint.receive(controlChannel, (report: Report) => {
        if (report.kind === "pong") {
          this.#unanswered = 0;
          return;
        }
        this.#lastReport = report.kind;
        if (report.kind === "progress") options.onProgress?.(report.value);
        else if (report.kind === "ready") resolve(report.value);
        else if (report.kind === "failed") reject(fromErrorRecord(report.error));
        else if (report.kind === "crashing") this.#crash = report.error.message;
      });
      this.endpoint.exit.then((exit) => {
        reject(new ServerError("peer_gone", `"${name}" died while it started: ${exit.reason}`));
      });
      const timer = setTimeout(() => {
        reject(new ServerError("timeout", `"${name}" did not start within ${startTimeoutMs} ms`));
      }, startTimeoutMs);
      const cancel = () => reject(new ServerError("cancelled", `the start of "${name}" was cancelled`));
      signal?.addEventListener("abort", cancel);
      if (signal?.aborted) cancel();
      giveUp = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", cancel);
      };
    });
    this.#command({ kind: "start", module: options.module.href, init });
    return await outcome.finally(giveUp);
  }

  dial(): Promise<DialTicket> {
    return this.#host.dial();
  }

  /** Kills the place if its event loop blocks. Pings are counted, not timed: this thread may have been blocked itself. */
  watch(limitMs: number): void {
    const timer = setInterval(() => {
      if (this.#unanswered++ < pingsPerLimit) this.#command({ kind: "ping" });
      else this.kill(`did not answer for ${limitMs} ms and was killed`);
    }, limitMs / pingsPerLimit).unref();
    void this.endpoint.exit.then(() => clearInterval(timer));
  }

  async stop(deadlineMs: number): Promise<PeerExit> {
    this.#command({ kind: "stop" });
    const timer = setTimeout(() => this.kill(`did not stop within ${deadlineMs} ms and was killed`), deadlineMs);
    const exit = await this.endpoint.exit;
    clearTimeout(timer);
    return exit;
  }

  kill(reason: string): void {
    this.#verdict ??= reason;
    this.#host.kill();
  }

  #command(command: Command): void {
    this.endpoint.send(controlChannel, command);
  }

  /** After the loss of the endpoint: waits for the end of the thread or process, or kills it, and returns the reason. */
  async #explain(loss: PeerExit, isFailure: boolean): Promise<PeerExit> {
    if (isFailure) this.kill(`its connection failed: ${loss.reason}`);
    const linger = setTimeout(() => this.kill(`lost its connection (${loss.reason}) and was killed`), lingerMs);
    const exit = await this.#host.gone;
    clearTimeout(linger);
    const orderly = this.#verdict === null && this.#lastReport === "stopped";
    return { reason: orderly ? "stopped" : this.#reasonOf(exit), code: exit.code, signal: exit.signal, orderly };
  }

  #reasonOf(exit: HostExit): string {
    if (this.#verdict !== null) return this.#verdict;
    if (this.#crash !== null) return `crashed: ${this.#crash}`;
    if (exit.fault !== null) return `crashed: ${exit.fault}`;
    if (exit.signal !== null) return `killed by ${exit.signal}`;
    return `exited with code ${exit.code}`;
  }
}
