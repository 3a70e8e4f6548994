// Owns the main thread's side of what outlives the process: starts the state place, keeps it supervised, and hands what http/
// asks to the actors there.
import type { Ref } from "../runtime/actor/ref.ts";
import { type RestartPolicy, type Supervisor, supervise } from "../runtime/actor/supervision.ts";
import { ActorSystem } from "../runtime/actor/system.ts";
import { ServerError } from "../runtime/errors.ts";
import type { Logger } from "../runtime/log.ts";
import { spawnPlace } from "../runtime/thread/place.ts";
import type { StatePlaceInit } from "./messages.ts";
import { stateModule } from "./placement.ts";
import type { FoundResponse, StoredResponse, StoredResponses, Turn, UpdateOutcome } from "./stored-responses.ts";

const startTimeoutMs = 30_000;

export interface StateFrontOptions {
  readonly init: StatePlaceInit;
  readonly restart: RestartPolicy;
  readonly log: Logger;
}

export class StateFront implements StoredResponses {
  readonly #options: StateFrontOptions;
  readonly #system = new ActorSystem("front");
  #supervisor: Supervisor | null = null;
  #responses: Ref<StoredResponses> | null = null;

  constructor(options: StateFrontOptions) {
    this.#options = options;
  }

  /** Rejects with config_invalid where the folder cannot be used. */
  async start(): Promise<void> {
    const { init, restart, log } = this.#options;
    let wasUp = false;
    await new Promise<void>((resolve, reject) => {
      this.#supervisor = supervise<null>({
        name: "state",
        start: (signal) =>
          spawnPlace({ signal, name: "state", module: stateModule, init, carrier: "thread", startTimeoutMs }),
        policy: restart,
        onUp: (place) => {
          this.#responses = this.#system.ref<StoredResponses>("responses", place.endpoint);
          wasUp = true;
          resolve();
        },
        onDown: (exit, next) => {
          this.#responses = null;
          // Whoever starts it is told by the rejection.
          if (exit.orderly || (!wasUp && next === null)) return;
          log.error(
            { reason: exit.reason, retryInMs: next?.retryInMs },
            "the state place ended; nothing is kept until it is back",
          );
        },
        onEscalate: (error) => {
          if (wasUp) log.error({ err: error }, "the state place does not stay up; nothing is kept until a restart");
          reject(error);
        },
      });
    });
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#supervisor?.stop(deadlineMs);
    await this.#system.stop();
  }

  async add(response: StoredResponse): Promise<void> {
    await this.#actor().ask("add", response);
  }

  async update(response: StoredResponse): Promise<UpdateOutcome> {
    return await this.#actor().ask("update", response);
  }

  async get(id: string): Promise<FoundResponse | null> {
    return await this.#actor().ask("get", id);
  }

  async delete(id: string): Promise<boolean> {
    return await this.#actor().ask("delete", id);
  }

  async history(id: string): Promise<readonly Turn[]> {
    return await this.#actor().ask("history", id);
  }

  #actor(): Ref<StoredResponses> {
    if (this.#responses !== null) return this.#responses;
    throw new ServerError("peer_gone", "stored responses cannot be reached now; try again soon");
  }
}
