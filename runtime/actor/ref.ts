// Owns the typed reference to an actor, here or at a peer, and the one race every ask runs: answer against clock.
import type { Clock } from "../clock.ts";
import type { Transferable } from "../endpoint/endpoint.ts";
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../errors.ts";
import type { MessageOf, ReplyOf } from "./behaviour.ts";

const defaultAskTimeoutMs = 30_000;

/** How an ask ended, as it crosses places: comlink would lose the error's class. */
export type Reply =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly error: ErrorRecord };

/** `moved` are buffers in the envelope that need not be copied. */
export type ReplyCallback = (envelope: Reply, moved?: readonly Transferable[]) => void;

export interface AskOptions {
  /** 30 s unless said otherwise. */
  readonly timeoutMs?: number;
  /** What moves with the message instead of being copied. */
  readonly transfer?: readonly Transferable[];
}

/**
 * A handle on an actor: the name of its place, its own name, and a way there. A message is not touched once it is sent: at
 * the same place it is not copied.
 */
export interface Ref<P> {
  readonly place: string;
  readonly name: string;
  /**
   * Sends a message and waits for the answer. Rejects with a ServerError: the behaviour's own, `timeout`,
   * `peer_gone`, `mailbox_full`, `draining`, or `internal`.
   */
  ask<K extends keyof P & string>(method: K, message: MessageOf<P, K>, options?: AskOptions): Promise<ReplyOf<P, K>>;
  /** Sends a message and forgets it; a failure is reported to the onError of the receiving place's system. */
  tell<K extends keyof P & string>(method: K, message: MessageOf<P, K>, transfer?: readonly Transferable[]): void;
}

/** The two ways to reach an actor, without its types. */
export interface Route {
  ask(actor: string, method: string, message: unknown, transfer: readonly Transferable[], settle: ReplyCallback): void;
  tell(actor: string, method: string, message: unknown, transfer?: readonly Transferable[]): void;
}

export function makeRef<P>(place: string, name: string, route: Route, clock: Clock): Ref<P> {
  const ask = (method: string, message: unknown, options: AskOptions = {}) =>
    new Promise<unknown>((resolve, reject) => {
      const timeoutMs = options.timeoutMs ?? defaultAskTimeoutMs;
      const cancelTimeout = clock.setTimeout(() => {
        reject(new ServerError("timeout", `"${name}" at "${place}" did not answer ${method} within ${timeoutMs} ms`));
      }, timeoutMs);
      route.ask(name, method, message, options.transfer ?? [], (envelope) => {
        cancelTimeout();
        if (envelope.ok) resolve(envelope.value);
        else reject(fromErrorRecord(envelope.error));
      });
    });
  return {
    place,
    name,
    ask: ask as Ref<P>["ask"],
    tell: (method, message, transfer) => route.tell(name, method, message, transfer),
  };
}

export function failure(thrown: unknown): Reply {
  return { ok: false, error: toErrorRecord(thrown) };
}
