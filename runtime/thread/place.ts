// Owns a place as its spawner sees it: start with a time limit, progress, dialling, orderly stop, death and its reason.
// Used by the composition root and by supervisors. What runs inside a place is entry.ts's business.

import type { Endpoint, PeerExit } from "../endpoint/endpoint.ts";
import { fromErrorRecord, ServerError } from "../errors.ts";
import { writeStderr } from "../log/stderr.ts";
import { type Command, controlChannel, type Report } from "./control.ts";
import type { DialTicket } from "./dial.ts";
import type { Host, HostExit } from "./place-kind.ts";
import { startProcess } from "./process-place.ts";
import { startThread } from "./worker-place.ts";

/** How long a thread or process may outlive its link before it is killed. */
const lingerMs = 1000;
/** How often a place that is watched is asked for an answer within the time it has for one. */
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
  /** Once it has started, a place whose event loop stands still for this long is killed; never where left out. */
  readonly answersWithinMs?: number;
  /** Most MiB of its JavaScript heap; only for a thread. */
  readonly heapMiB?: number;
  /** Gives up the start: the place is killed and spawnPlace rejects with `cancelled`. */
  readonly signal?: AbortSignal;
  /** What the place passes to `progress` while it starts, and later. */
  readonly onProgress?: (value: unknown) => void;
  /** Variables beside the ones inherited. A process does not inherit those that look like secrets. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Lines the place prints; without it they go to our stderr. */
  readonly onOutput?: (line: string) => void;
}

export interface Place<Ready> {
  readonly name: string;
  /** What `start` returned. */
  readonly ready: Ready;
  /** The spawner's own link. */
  readonly endpoint: Endpoint;
  /** Settles when the thread or process has ended. Never rejects. */
  readonly exit: Promise<PeerExit>;
  /** The child's process id; null for a thread. */
  readonly pid: number | null;
  /** A ticket with which another thread opens its own link to this place. */
  dial(): Promise<DialTicket>;
  /** Runs the place's stop hooks and ends it; kills it when the deadline passes. */
  stop(deadlineMs: number): Promise<PeerExit>;
  kill(): void;
}

/**
 * Starts a place and waits until its `start` has returned. Rejects with the ServerError start() threw, or with `timeout`,
 * `cancelled` or `peer_gone`; nothing of the place is left then.
 */
export async function spawnPlace<Init, Ready>(options: PlaceOptions<Init>): Promise<Place<Ready>> {
  const host = new PlaceHost(options);
  try {
    const ready = (await host.started(options)) as Ready;
    if (options.answersWithinMs !== undefined) host.watch(options.answersWithinMs);
    return {
      name: options.name,
      ready,
      endpoint: host.link,
      exit: host.link.exit,
      pid: host.pid,
      dial: () => host.dial(),
      stop: (deadlineMs) => host.stop(deadlineMs),
      kill: () => host.kill("killed by its spawner"),
    };
  } catch (error) {
    host.kill("it did not start");
    await host.link.exit;
    throw error;
  }
}

class PlaceHost<Init> {
  readonly #host: Host;
  /** Why we ended the place ourselves; the first reason counts. */
  #verdict: string | null = null;
  #lastReport: Report["kind"] | null = null;
  #crash: string | null = null;
  /** Pings in a row without an answer. */
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

  get link(): Endpoint {
    return this.#host.link;
  }

  get pid(): number | null {
    return this.#host.pid;
  }

  /** Settles with what start() returned. */
  async started(options: PlaceOptions<Init>): Promise<unknown> {
    const { name, init, startTimeoutMs, signal } = options;
    let giveUp: () => void = () => {};
    const outcome = new Promise<unknown>((resolve, reject) => {
      this.link.receive(controlChannel, (report: Report) => {
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
      this.link.exit.then((exit) => {
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

  /** Kills the place when its event loop stands still. Pings are counted, not timed: this thread may have stood still itself. */
  watch(limitMs: number): void {
    const timer = setInterval(() => {
      if (this.#unanswered++ < pingsPerLimit) this.#command({ kind: "ping" });
      else this.kill(`did not answer for ${limitMs} ms and was killed`);
    }, limitMs / pingsPerLimit).unref();
    void this.link.exit.then(() => clearInterval(timer));
  }

  async stop(deadlineMs: number): Promise<PeerExit> {
    this.#command({ kind: "stop" });
    const timer = setTimeout(() => this.kill(`did not stop within ${deadlineMs} ms and was killed`), deadlineMs);
    const exit = await this.link.exit;
    clearTimeout(timer);
    return exit;
  }

  kill(reason: string): void {
    this.#verdict ??= reason;
    this.#host.kill();
  }

  #command(command: Command): void {
    this.link.send(controlChannel, command);
  }

  /** The link is gone; the thread or process should be too. Finds out why, and makes sure. */
  async #explain(loss: PeerExit, isFailure: boolean): Promise<PeerExit> {
    if (isFailure) this.kill(`its link failed: ${loss.reason}`);
    const linger = setTimeout(() => this.kill(`lost its link (${loss.reason}) and was killed`), lingerMs);
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
