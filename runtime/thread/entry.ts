// Owns what runs inside every place, whichever its carrier: load the module, run its start(), answer the spawner, stop in
// order. Called by entry-thread.ts and entry-process.ts. It outlives its spawner by no more than one turn of the loop.
import assert from "node:assert";
import { ActorSystem } from "../actor/system.ts";
import { toErrorRecord } from "../errors.ts";
import { type Command, controlChannel, type Report } from "./control.ts";
import type { Endpoint } from "./endpoint.ts";

/** What a place's module gets to work with. */
export interface PlaceContext<Init> {
  readonly name: string;
  readonly init: Init;
  /** This place's actors; the spawner and every peer that dials can reach them. */
  readonly system: ActorSystem;
  /** Reports to the spawner's onProgress. */
  progress(value: unknown): void;
  /** Runs at an orderly stop, the latest hook first, while actors still answer; their own onStop runs after. */
  onStop(hook: () => Promise<void> | void): void;
}

/** The type of the function `start` that a place's module exports. What it returns is plain data. */
export type StartPlace<Init, Ready> = (place: PlaceContext<Init>) => Promise<Ready>;

/** Serves the spawner on `link`. Returns how dialled peers are let in. */
export function runPlace(link: Endpoint): (peer: Endpoint) => void {
  const peers = new Set<Endpoint>();
  let inside: Inside | null = null;
  link.receive(controlChannel, (command: Command) => {
    if (command.kind === "start") {
      inside = new Inside(link, command);
      for (const peer of peers) inside.system.attach(peer);
      void inside.start(command);
    } else {
      void inside?.stop(0, { kind: "stopped" });
    }
  });
  // "Monitor" leaves what follows as it is: the stack on stderr, and the end of the thread or process.
  process.on("uncaughtExceptionMonitor", (error) => report(link, { kind: "crashing", error: toErrorRecord(error) }));
  // Whatever still runs in here, nobody can reach it any more.
  link.exit.then(() => process.exit(inside?.exitCode ?? 1));
  return (peer) => {
    peers.add(peer);
    peer.exit.then(() => peers.delete(peer));
    inside?.system.attach(peer);
  };
}

class Inside {
  readonly system: ActorSystem;
  exitCode = 1;
  readonly #link: Endpoint;
  readonly #hooks: (() => Promise<void> | void)[] = [];
  #isStopping = false;

  constructor(link: Endpoint, command: Command & { kind: "start" }) {
    this.#link = link;
    this.system = new ActorSystem(command.name);
    this.system.attach(link);
  }

  async start(command: Command & { kind: "start" }): Promise<void> {
    try {
      const module = (await import(command.module)) as { start?: StartPlace<unknown, unknown> };
      assert(typeof module.start === "function", `${command.module} exports no function start`);
      const value = await module.start({
        name: command.name,
        init: command.init,
        system: this.system,
        progress: (progress) => report(this.#link, { kind: "progress", value: progress }),
        onStop: (hook) => void this.#hooks.push(hook),
      });
      report(this.#link, { kind: "ready", value });
    } catch (error) {
      await this.stop(1, { kind: "failed", error: toErrorRecord(error) });
    }
  }

  /** Runs the hooks, stops the actors, says the last word, and closes the link, which ends the place. */
  async stop(exitCode: number, lastWord: Report): Promise<void> {
    if (this.#isStopping) return;
    this.#isStopping = true;
    this.exitCode = exitCode;
    for (const hook of this.#hooks.reverse()) {
      try {
        await hook();
      } catch (error) {
        this.system.onError(error, "a stop hook");
      }
    }
    await this.system.stop();
    report(this.#link, lastWord);
    this.#link.close();
  }
}

function report(link: Endpoint, message: Report): void {
  link.send(controlChannel, message);
}
