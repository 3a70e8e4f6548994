// Ref: a typed reference to an actor, at this place or a peer. An ask ends with the reply or its timeout.
import type { Clock } from "../clock.ts";
import type { Transferable } from "../endpoint/endpoint.ts";
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../errors.ts";
import type { MessageOf, ReplyOf } from "./behaviour.ts";

const defaultAskTimeoutMs = 30_000;

/** Result of an ask, as it crosses places: comlink would lose the class of an error. */
export type Reply =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly error: ErrorRecord };

/** `moved`: buffers in the reply to transfer instead of copy. */
export type ReplyCallback = (reply: Reply, moved?: readonly Transferable[]) => void;

export interface AskOptions {
  /** Default 30 s. */
  readonly timeoutMs?: number;
  /** Transferred with the message instead of copied. */
  readonly transfer?: readonly Transferable[];
}

/**
 * Reference to an actor. A message must not be changed after it was sent: within a place it is not copied.
 */
export interface Ref<P> {
  readonly place: string;
  readonly name: string;
  /**
   * Sends a message and waits for the reply. Rejects with a ServerError: the handler's own, `timeout`,
   * `peer_gone`, `mailbox_full`, `draining`, or `internal`.
   */
  ask<K extends keyof P & string>(method: K, message: MessageOf<P, K>, options?: AskOptions): Promise<ReplyOf<P, K>>;
  /** Sends a message without a reply; a failure is reported to the onError of the receiving place's system. */
  tell<K extends keyof P & string>(method: K, message: MessageOf<P, K>, transfer?: readonly Transferable[]): void;
}

/** Untyped delivery to the actors of one place. */
export interface Route {
  ask(actor: string, method: string, message: unknown, transfer: readonly Transferable[], onReply: ReplyCallback): void;
  tell(actor: string, method: string, message: unknown, transfer?: readonly Transferable[]): void;
}

export function makeRef<P>(place: string, name: string, route: Route, clock: Clock): Ref<P> {
  const ask = (method: string, message: unknown, options: AskOptions = {}) =>
    new Promise<unknown>((resolve, reject) => {
      const timeoutMs = options.timeoutMs ?? defaultAskTimeoutMs;
      const cancelTimeout = clock.setTimeout(() => {
        reject(new ServerError("timeout", `"${name}" at "${place}" did not answer ${method} within ${timeoutMs} ms`));
      }, timeoutMs);
      route.ask(name, method, message, options.transfer ?? [], (reply) => {
        cancelTimeout();
        if (reply.ok) resolve(reply.value);
        else reject(fromErrorRecord(reply.error));
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
