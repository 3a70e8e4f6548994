// Actor system: contains the actors of one place (thread or process). Each place has exactly one. It spawns actors, delivers
// messages from this place and from attached peers, and stops the actors in order. supervision.ts decides on restarts.
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
  /** Time in ms that stop() gives each actor to drain its mailbox. */
  readonly drainMs?: number;
}

export class ActorSystem {
  readonly place: string;
  /**
   * Receives programming errors, and the errors of failed tells (messages without a reply). By
   * default, writes a line to stderr.
   */
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
      ask: (actor, method, content, _transfer, onReply) =>
        this.#post(actor, { method, content, sender: null, onReply }),
      tell: (actor, method, content) => this.#post(actor, { method, content, sender: null, onReply: null }),
    };
  }

  /** Starts an actor in this thread or process. Its name must not be in use. A full mailbox rejects messages with `mailbox_full`. */
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

  /** Returns a ref to an actor at the peer. Attaches the endpoint if necessary. */
  ref<P extends Protocol<P>>(name: string, endpoint: Endpoint): Ref<P> {
    return makeRef<P>(endpoint.peer, name, this.#route(endpoint), this.#clock);
  }

  /** Connects this thread or process with a peer. The actors of this place and of the peer can then send messages to each other. */
  attach(endpoint: Endpoint): void {
    this.#route(endpoint);
  }

  /** Stops one actor. Handles the messages in its mailbox for at most the drain time, then runs its onStop. */
  async stopActor(name: string): Promise<void> {
    const actor = this.#actors.get(name);
    if (actor === undefined) return;
    await actor.stop(this.#drainMs, this.#clock);
    if (this.#actors.get(name) === actor) this.#actors.delete(name);
  }

  /** Stops every actor. New messages are rejected with `draining`. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all([...this.#actors.keys()].map((name) => this.stopActor(name)));
  }

  #route(endpoint: Endpoint): RemoteRoute {
    const existing = this.#routes.get(endpoint);
    if (existing !== undefined) return existing;
    const route = new RemoteRoute(endpoint, (actor, message) => this.#post(actor, message));
    this.#routes.set(endpoint, route);
    return route;
  }

  #post(name: string, message: Message): void {
    const actor = this.#actors.get(name);
    if (actor !== undefined) {
      actor.post(message);
      return;
    }
    const error = this.#isStopping
      ? new ServerError("draining", `"${this.place}" is stopping; it takes no more messages`)
      : new ServerError("peer_gone", `"${this.place}" has no actor "${name}"; it may have stopped`);
    if (message.onReply === null && !this.#isStopping) this.onError(error, `${name}.${message.method}`);
    message.onReply?.(failure(error));
  }
}
