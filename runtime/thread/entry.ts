// Code inside a place (a thread or process): loads the place's module, runs its start(), replies to the spawner, and handles an
// orderly stop. Called by entry-thread.ts and entry-process.ts. The place ends within one turn of the event loop after its
// spawner has ended.
import assert from "node:assert";
import { ActorSystem } from "../actor/system.ts";
import type { Endpoint } from "../endpoint/endpoint.ts";
import { ServerError, toErrorRecord } from "../errors.ts";
import { type Command, controlChannel, type Report } from "./control.ts";

/** Argument of the `start` function in the module of a place (thread or process). */
export interface PlaceContext<Init> {
  readonly name: string;
  readonly init: Init;
  /** Connection to the thread or process that started this one. */
  readonly spawner: Endpoint;
  /** Actor system of this thread or process. The spawner and all connected peers can reach its actors. */
  readonly system: ActorSystem;
  /** Sends a value to the spawner's onProgress. */
  progress(value: unknown): void;
  /**
   * Adds a hook for an orderly stop. The latest hook runs first. Actors still reply while hooks run;
   * their onStop runs after the hooks.
   */
  onStop(hook: () => Promise<void> | void): void;
}

/** Type of the `start` function that the module of a place (thread or process) exports. It resolves to plain data. */
export type StartPlace<Init, Ready> = (place: PlaceContext<Init>) => Promise<Ready>;

export class PlaceEntry {
  readonly #name: string;
  readonly #endpoint: Endpoint;
  readonly #system: ActorSystem;
  readonly #peers = new Set<Endpoint>();
  readonly #hooks: (() => Promise<void> | void)[] = [];
  #isStopping = false;
  #exitCode = 1;

  /** `endpoint`: connection to the spawner (the thread or process that started this one). */
  constructor(name: string, endpoint: Endpoint) {
    this.#name = name;
    this.#endpoint = endpoint;
    this.#system = new ActorSystem(name);
    this.#system.attach(endpoint);
    endpoint.receive(controlChannel, (command: Command) => {
      if (command.kind === "start") void this.#start(command);
      else if (command.kind === "ping") this.#report({ kind: "pong" });
      else void this.#stop(0, { kind: "stopped" });
    });
    // A listener of "uncaughtExceptionMonitor" keeps the default behaviour: the stack is written to stderr, and the thread or
    // process ends.
    process.on("uncaughtExceptionMonitor", (error) => this.#report({ kind: "crashing", error: toErrorRecord(error) }));
    // Exit when the spawner is gone, because nothing else uses this thread or process.
    endpoint.exit.then(() => process.exit(this.#exitCode));
  }

  /** Accepts the connection of a peer. */
  admit(peer: Endpoint): void {
    this.#peers.add(peer);
    peer.exit.then(() => this.#peers.delete(peer));
    this.#system.attach(peer);
  }

  async #start(command: Command & { kind: "start" }): Promise<void> {
    try {
      const module = (await import(command.module)) as { start?: StartPlace<unknown, unknown> };
      assert(typeof module.start === "function", `${command.module} exports no function start`);
      const value = await module.start({
        name: this.#name,
        init: command.init,
        spawner: this.#endpoint,
        system: this.#system,
        progress: (progress) => this.#report({ kind: "progress", value: progress }),
        onStop: (hook) => void this.#hooks.push(hook),
      });
      this.#report({ kind: "ready", value });
    } catch (error) {
      if (!(error instanceof ServerError)) this.#system.onError(error, "start");
      await this.#stop(1, { kind: "failed", error: toErrorRecord(error) });
    }
  }

  /** Runs the hooks, stops the actors, sends the last report, and closes the endpoint, which ends this thread or process. */
  async #stop(exitCode: number, lastReport: Report): Promise<void> {
    if (this.#isStopping) return;
    this.#isStopping = true;
    this.#exitCode = exitCode;
    for (const hook of this.#hooks.reverse()) {
      try {
        await hook();
      } catch (error) {
        this.#system.onError(error, "a stop hook");
      }
    }
    await this.#system.stop();
    this.#report(lastReport);
    for (const peer of this.#peers) peer.close();
    this.#endpoint.close();
  }

  #report(report: Report): void {
    this.#endpoint.send(controlChannel, report);
  }
}
