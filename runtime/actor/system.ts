// Owns the actors of one place: spawning, reaching them from here and from attached peers, and the orderly end. Every
// place has exactly one. It decides nothing about restarts: supervision.ts does.
import assert from "node:assert";
import { type Clock, realClock } from "../clock.ts";
import type { Endpoint } from "../endpoint/endpoint.ts";
import { ServerError } from "../errors.ts";
import { Actor, type Message, type OnError } from "./actor.ts";
import type { Behaviour, Protocol } from "./behaviour.ts";
import { failure, makeRef, type Ref, type Route } from "./ref.ts";
import { RemoteRoute } from "./remote-route.ts";

const defaultMailboxLimit = 1024;
const defaultDrainMs = 5000;

export interface ActorSystemOptions {
  readonly clock?: Clock;
  /** How long stop() lets each actor work off its mailbox. */
  readonly drainMs?: number;
}

export class ActorSystem {
  readonly place: string;
  /** Hears of failed tells and programmer mistakes. Writes a line to stderr unless replaced. */
  onError: OnError;
  readonly #clock: Clock;
  readonly #drainMs: number;
  readonly #actors = new Map<string, Actor>();
  readonly #routes = new WeakMap<Endpoint, RemoteRoute>();
  readonly #here: Route;
  #isStopping = false;

  constructor(place: string, options: ActorSystemOptions = {}) {
    this.place = place;
    this.#clock = options.clock ?? realClock;
    this.#drainMs = options.drainMs ?? defaultDrainMs;
    this.onError = (error, at) => {
      process.stderr.write(`${at} at ${place}: ${error instanceof Error ? error.stack : String(error)}\n`);
    };
    this.#here = {
      ask: (actor, method, message, _transfer, settle) => this.#post(actor, { method, message, sender: null, settle }),
      tell: (actor, method, message) => this.#post(actor, { method, message, sender: null, settle: null }),
    };
  }

  /** Starts an actor here. Its name must be free; a full mailbox refuses with `mailbox_full`. */
  spawn<P extends Protocol<P>>(
    name: string,
    behaviour: Behaviour<P>,
    options: { readonly mailboxLimit?: number } = {},
  ): Ref<P> {
    assert(!this.#isStopping, `"${this.place}" is stopping; it cannot spawn "${name}"`);
    assert(!this.#actors.has(name), `"${this.place}" already has an actor "${name}"`);
    const onError: OnError = (error, at) => this.onError(error, at);
    this.#actors.set(name, new Actor(name, behaviour, options.mailboxLimit ?? defaultMailboxLimit, onError));
    return makeRef<P>(this.place, name, this.#here, this.#clock);
  }

  /** A ref to an actor at the peer; attaches the endpoint if it is not. */
  ref<P extends Protocol<P>>(name: string, endpoint: Endpoint): Ref<P> {
    return makeRef<P>(endpoint.peer, name, this.#route(endpoint), this.#clock);
  }

  /** Lets the peer reach the actors here, and makes refs to the peer's possible. */
  attach(endpoint: Endpoint): void {
    this.#route(endpoint);
  }

  /** Stops one actor: works off its mailbox, up to the drain time, and runs its onStop. */
  async stopActor(name: string): Promise<void> {
    const actor = this.#actors.get(name);
    if (actor === undefined) return;
    await actor.stop(this.#drainMs, this.#clock);
    if (this.#actors.get(name) === actor) this.#actors.delete(name);
  }

  /** Refuses new messages with `draining`, then stops every actor. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all([...this.#actors.keys()].map((name) => this.stopActor(name)));
  }

  #route(endpoint: Endpoint): RemoteRoute {
    const existing = this.#routes.get(endpoint);
    if (existing !== undefined) return existing;
    const route = new RemoteRoute(endpoint, (actor, letter) => this.#post(actor, letter));
    this.#routes.set(endpoint, route);
    return route;
  }

  #post(name: string, letter: Message): void {
    const actor = this.#actors.get(name);
    if (actor !== undefined) {
      actor.post(letter);
      return;
    }
    const error = this.#isStopping
      ? new ServerError("draining", `"${this.place}" is stopping; it takes no more messages`)
      : new ServerError("peer_gone", `"${this.place}" has no actor "${name}"; it may have stopped`);
    if (letter.settle === null && !this.#isStopping) this.onError(error, `${name}.${letter.method}`);
    letter.settle?.(failure(error));
  }
}
