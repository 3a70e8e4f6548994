// Owns what runs inside every place, whichever its carrier: load the module, run its start(), answer the spawner, stop in
// order. Called by entry-thread.ts and entry-process.ts. It outlives its spawner by no more than one turn of the loop.
import assert from "node:assert";
import { ActorSystem } from "../actor/system.ts";
import type { Endpoint } from "../endpoint/endpoint.ts";
import { ServerError, toErrorRecord } from "../errors.ts";
import { type Command, controlChannel, type Report } from "./control.ts";

/** What a place's module gets to work with. */
export interface PlaceContext<Init> {
  readonly name: string;
  readonly init: Init;
  /** The link to the place that started this one. */
  readonly spawner: Endpoint;
  /** This place's actors; the spawner and every peer that dials can reach them. */
  readonly system: ActorSystem;
  /** Reports to the spawner's onProgress. */
  progress(value: unknown): void;
  /** Runs at an orderly stop, the latest hook first, while actors still answer; their own onStop runs after. */
  onStop(hook: () => Promise<void> | void): void;
}

/** The type of the function `start` that a place's module exports. What it returns is plain data. */
export type StartPlace<Init, Ready> = (place: PlaceContext<Init>) => Promise<Ready>;

export class PlaceEntry {
  readonly #name: string;
  readonly #link: Endpoint;
  readonly #system: ActorSystem;
  readonly #peers = new Set<Endpoint>();
  readonly #hooks: (() => Promise<void> | void)[] = [];
  #isStopping = false;
  #exitCode = 1;

  /** Serves the spawner at the other end of `link`, and whoever is admitted. */
  constructor(name: string, link: Endpoint) {
    this.#name = name;
    this.#link = link;
    this.#system = new ActorSystem(name);
    this.#system.attach(link);
    link.receive(controlChannel, (command: Command) => {
      if (command.kind === "start") void this.#start(command);
      else if (command.kind === "ping") this.#report({ kind: "pong" });
      else void this.#stop(0, { kind: "stopped" });
    });
    // "Monitor" leaves what follows as it is: the stack on stderr, and the end of the thread or process.
    process.on("uncaughtExceptionMonitor", (error) => this.#report({ kind: "crashing", error: toErrorRecord(error) }));
    // Whatever still runs in here, nobody can reach it any more.
    link.exit.then(() => process.exit(this.#exitCode));
  }

  /** Lets a dialled peer in. */
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
        spawner: this.#link,
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

  /** Runs the hooks, stops the actors, says the last word, and closes the link, which ends the place. */
  async #stop(exitCode: number, lastWord: Report): Promise<void> {
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
    this.#report(lastWord);
    for (const peer of this.#peers) peer.close();
    this.#link.close();
  }

  #report(report: Report): void {
    this.#link.send(controlChannel, report);
  }
}
