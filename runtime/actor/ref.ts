// Ref: a typed reference to an actor, either in this place (thread or process) or in a peer. An ask
// ends with a reply or a timeout.
import type { Clock } from "../clock.ts";
import type { Transferable } from "../endpoint/endpoint.ts";
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../errors.ts";
import type { MessageOf, ReplyOf } from "./behaviour.ts";

const defaultAskTimeoutMs = 30_000;

/**
 * Result of an ask, in the form that is sent between threads. Errors are plain data, because comlink
 * would lose the class of an error.
 */
export type Reply =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly error: ErrorRecord };

/** Receives a reply. `moved`: buffers in the reply that are transferred instead of copied. */
export type ReplyCallback = (reply: Reply, moved?: readonly Transferable[]) => void;

export interface AskOptions {
  /** Time limit of the ask in ms; default 30 s. */
  readonly timeoutMs?: number;
  /** Objects that are transferred with the message instead of copied. */
  readonly transfer?: readonly Transferable[];
}

/**
 * Reference to an actor. A message must not be changed after it was sent, because it is not copied if the actor runs in the same
 * thread or process.
 */
export interface Ref<P> {
  readonly place: string;
  readonly name: string;
  /**
   * Sends a message and waits for the reply. Rejects with the ServerError that the handler threw, or with `timeout`,
   * `peer_gone`, `mailbox_full`, `draining`, or `internal`.
   */
  ask<K extends keyof P & string>(method: K, message: MessageOf<P, K>, options?: AskOptions): Promise<ReplyOf<P, K>>;
  /** Sends a message that has no reply. A failure is reported to `onError` of the actor system that receives the message. */
  tell<K extends keyof P & string>(method: K, message: MessageOf<P, K>, transfer?: readonly Transferable[]): void;
}

/** Delivers messages to the actors of one place (thread or process), without static types. */
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
