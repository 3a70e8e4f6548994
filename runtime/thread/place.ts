// Place (worker thread or child process) as seen by its spawner: its start with a time limit, its progress, connections to it,
// its orderly stop, and the reason of its end. The code inside the place is entry.ts.

import type { Endpoint, PeerExit } from "../endpoint/endpoint.ts";
import { fromErrorRecord, ServerError } from "../errors.ts";
import { writeStderr } from "../log/stderr.ts";
import { type Command, controlChannel, type Report } from "./control.ts";
import type { DialTicket } from "./dial.ts";
import type { Host, HostExit } from "./place-kind.ts";
import { startProcess } from "./process-place.ts";
import { startThread } from "./worker-place.ts";

/** Time in ms after which a thread or process is killed if it has not ended after its endpoint was closed. */
const lingerMs = 1000;
/** Number of pings sent within `answersWithinMs` to a thread or process whose event loop is watched. */
const pingsPerLimit = 5;

export type PlaceKind = "thread" | "process";

export interface PlaceOptions<Init> {
  readonly name: string;
  /** A compiled module. Its `start` function (see StartPlace in entry.ts) runs in the new thread or process. */
  readonly module: URL;
  /** Plain data that is passed to `start`. */
  readonly init: Init;
  readonly kind: PlaceKind;
  readonly startTimeoutMs: number;
  /**
   * Maximum time in ms for which the event loop of the thread or process may block after the start. If it blocks longer, the
   * thread or process is killed. If absent, there is no limit.
   */
  readonly answersWithinMs?: number;
  /** Maximum size of the JavaScript heap in MiB; only for a thread. */
  readonly heapMiB?: number;
  /** Aborts the start: the thread or process is killed, and spawnPlace rejects with `cancelled`. */
  readonly signal?: AbortSignal;
  /** Receives the values that the thread or process passes to `progress`. It may be called at any time. */
  readonly onProgress?: (value: unknown) => void;
  /** Environment variables, added to the inherited ones. A process does not inherit variables whose names indicate secrets. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Receives the lines that the thread or process prints. If absent, they are written to the stderr of the spawner's process. */
  readonly onOutput?: (line: string) => void;
}

export interface Place<Ready> {
  readonly name: string;
  /** Result of the module's `start` function. */
  readonly ready: Ready;
  /** The spawner's connection to the thread or process. */
  readonly endpoint: Endpoint;
  /** Resolves when the thread or process has ended. Never rejects. */
  readonly exit: Promise<PeerExit>;
  /** The child's process id; null for a thread. */
  readonly pid: number | null;
  /** Returns a ticket with which another thread can connect to this thread or process. */
  dial(): Promise<DialTicket>;
  /** Runs the stop hooks of the thread or process and ends it. Kills it at the deadline. */
  stop(deadlineMs: number): Promise<PeerExit>;
  kill(): void;
}

/**
 * Starts a place (thread or process) and waits for its `start`. Rejects with the ServerError that start() threw, or with
 * `timeout`, `cancelled` or `peer_gone`; the place has then ended.
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
  /** Reason why the spawner killed the thread or process. Only the first reason is kept. */
  #verdict: string | null = null;
  #lastReport: Report["kind"] | null = null;
  #crash: string | null = null;
  /** Number of pings in a row without a pong. */
  #unanswered = 0;

  constructor(options: PlaceOptions<Init>) {
    const start = options.kind === "thread" ? startThread : startProcess;
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

  /**
   * Kills the thread or process if its event loop blocks. Counts unanswered pings instead of measuring time, because this thread may have
   * been blocked itself.
   */
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

  /** Called after the endpoint was lost. Waits for the end of the thread or process, or kills it, and returns the reason. */
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
