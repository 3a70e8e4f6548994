// Owns what both carriers share: routing messages to their channel's handler, holding early ones, and settling `exit`
// exactly once. Subclassed by the two carriers only. Never blocks, never buffers without a bound.
import assert from "node:assert";
import type { Endpoint, PeerExit, Transferable } from "./endpoint.ts";

/** Most messages held for channels that have no handler yet. */
const heldLimit = 1024;

type Handler = (payload: unknown) => void;

/**
 * Turns what a carrier saw on its wire into how the peer ended. `isFailure` means that this side gave up on the link: a
 * limit passed, or bytes that make no sense.
 */
export type Explain = (loss: PeerExit, isFailure: boolean) => Promise<PeerExit>;

export interface LinkOptions {
  readonly peer: string;
  /** Given by a spawner, who hears from the system how its place ended; `exit` then settles with this answer. */
  readonly explain?: Explain;
}

export abstract class BaseEndpoint implements Endpoint {
  readonly peer: string;
  readonly exit: Promise<PeerExit>;
  readonly #handlers = new Map<string, Handler>();
  readonly #held = new Map<string, unknown[]>();
  readonly #explain: Explain | undefined;
  readonly #settleExit: (exit: PeerExit | Promise<PeerExit>) => void;
  #heldCount = 0;
  #isLost = false;

  constructor(options: LinkOptions) {
    this.peer = options.peer;
    this.#explain = options.explain;
    let settle: (exit: PeerExit | Promise<PeerExit>) => void = () => {};
    this.exit = new Promise((resolve) => {
      settle = resolve;
    });
    this.#settleExit = settle;
  }

  abstract send(channel: string, payload: unknown, transfer?: readonly Transferable[]): boolean;

  /** Says goodbye, so that the peer sees an orderly exit, and lets go of the carrier. */
  abstract close(): void;

  /** Lets go of the carrier at once. */
  protected abstract abandon(): void;

  receive(channel: string, handler: (payload: never) => void): void {
    assert(!this.#handlers.has(channel), `channel "${channel}" of "${this.peer}" already has a handler`);
    const typed = handler as Handler;
    this.#handlers.set(channel, typed);
    // In a microtask, so that the caller finishes its own setup first; until then deliver() appends to the held ones.
    if (this.#held.has(channel)) queueMicrotask(() => this.#deliverHeld(channel, typed));
  }

  /** True from the moment the link is over; `exit` may take a little longer, to learn why. */
  get isLost(): boolean {
    return this.#isLost;
  }

  /** Carriers call this for each message that arrives, in order. */
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

  /** This side gives up on the link. */
  protected fail(reason: string): void {
    this.lose({ reason, code: null, signal: null, orderly: false }, true);
  }

  /** The link is over, for whatever reason; only the first counts. */
  protected lose(loss: PeerExit, isFailure = false): void {
    if (this.#isLost) return;
    this.#isLost = true;
    this.abandon();
    this.#settleExit(this.#explain === undefined ? loss : this.#explain(loss, isFailure));
  }

  #deliverHeld(channel: string, handler: Handler): void {
    const held = this.#held.get(channel) ?? [];
    this.#held.delete(channel);
    this.#heldCount -= held.length;
    for (const payload of held) handler(payload);
  }
}

/** The carrier ended without a goodbye. */
export function silentLoss(): PeerExit {
  return { reason: "the link closed without a goodbye", code: null, signal: null, orderly: false };
}

/** One side closed on purpose. */
export function orderlyLoss(reason: string): PeerExit {
  return { reason, code: null, signal: null, orderly: true };
}
