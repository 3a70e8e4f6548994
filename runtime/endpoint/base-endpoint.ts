// Base class of both endpoints: passes messages to the handler of their channel, holds a limited number of early messages, and
// resolves `exit` exactly once.
import assert from "node:assert";
import { deferred } from "../deferred.ts";
import type { Endpoint, PeerExit, Transferable } from "./endpoint.ts";

/** Maximum number of messages held for channels that have no handler yet. */
const heldLimit = 1024;

type Handler = (payload: unknown) => void;

/**
 * Determines how the peer ended, from what its endpoint observed. `isFailure`: this endpoint closed the connection because a
 * limit was exceeded or bytes were invalid.
 */
export type Explain = (loss: PeerExit, isFailure: boolean) => Promise<PeerExit>;

export interface EndpointOptions {
  readonly peer: string;
  /**
   * Determines how the peer ended; `exit` resolves with the result. Set by the code that started the peer, because the
   * operating system tells this code how the peer ended.
   */
  readonly explain?: Explain;
}

export abstract class BaseEndpoint implements Endpoint {
  readonly peer: string;
  readonly #ended = deferred<PeerExit>();
  readonly exit = this.#ended.promise;
  readonly #handlers = new Map<string, Handler>();
  readonly #held = new Map<string, unknown[]>();
  readonly #explain: Explain | undefined;
  #heldCount = 0;
  #isLost = false;

  constructor(options: EndpointOptions) {
    this.peer = options.peer;
    this.#explain = options.explain;
  }

  abstract send(channel: string, payload: unknown, transfer?: readonly Transferable[]): boolean;

  /** Sends a goodbye and closes the connection. The peer sees an orderly exit. */
  abstract close(): void;

  /** Closes the connection immediately, without a goodbye. */
  protected abstract abandon(): void;

  receive(channel: string, handler: (payload: never) => void): void {
    assert(!this.#handlers.has(channel), `channel "${channel}" of "${this.peer}" already has a handler`);
    const typed = handler as Handler;
    this.#handlers.set(channel, typed);
    // Deliver in a microtask, so that the caller finishes its setup first. Until then, deliver() appends
    // new messages to the held ones.
    if (this.#held.has(channel)) queueMicrotask(() => this.#deliverHeld(channel, typed));
  }

  /** True once the connection is lost. `exit` may resolve later, when the reason is known. */
  get isLost(): boolean {
    return this.#isLost;
  }

  /**
   * Passes a message to its handler, or holds the message until the handler is set. Subclasses call this method for each
   * message that arrives, in order.
   */
  protected deliver(channel: string, payload: unknown): void {
    const handler = this.#handlers.get(channel);
    const held = this.#held.get(channel);
    if (handler !== undefined && held === undefined) {
      handler(payload);
    } else if (this.#heldCount >= heldLimit) {
      this.fail(`${heldLimit} messages wait for handlers, the last on channel "${channel}"`);
    } else {
      this.#heldCount++;
      if (held === undefined) this.#held.set(channel, [payload]);
      else held.push(payload);
    }
  }

  /** Closes the connection because of an error on this end. */
  protected fail(reason: string): void {
    this.lose({ reason, code: null, signal: null, orderly: false }, true);
  }

  /** Records that the connection is lost. Only the first call has an effect. */
  protected lose(loss: PeerExit, isFailure = false): void {
    if (this.#isLost) return;
    this.#isLost = true;
    this.abandon();
    this.#ended.resolve(this.#explain === undefined ? loss : this.#explain(loss, isFailure));
  }

  #deliverHeld(channel: string, handler: Handler): void {
    const held = this.#held.get(channel) ?? [];
    this.#held.delete(channel);
    this.#heldCount -= held.length;
    for (const payload of held) handler(payload);
  }
}

/** Returns the PeerExit for a connection that ended without a goodbye. */
export function silentLoss(): PeerExit {
  return { reason: "the connection closed without a goodbye", code: null, signal: null, orderly: false };
}

/** Returns the PeerExit for a connection that one end closed on purpose. */
export function orderlyLoss(reason: string): PeerExit {
  return { reason, code: null, signal: null, orderly: true };
}
