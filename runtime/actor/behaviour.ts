// Types of an actor: its protocol (an interface in which each method takes one plain-data message), and the behaviour that
// implements the protocol.
import type { Endpoint } from "../endpoint/endpoint.ts";
import type { DeferredReply } from "./deferred-reply.ts";
import type { Moved } from "./moved.ts";

/** Constraint on protocols: every method takes ONE plain-data message and returns plain data. */
export type Protocol<P> = { readonly [K in keyof P]: (message: never) => unknown };

export type MessageOf<P, K extends keyof P> = P[K] extends (message: infer M) => unknown ? M : never;
export type ReplyOf<P, K extends keyof P> = P[K] extends (message: never) => infer R ? Awaited<R> : never;

export interface ActorContext {
  /** The endpoint on which the message arrived; null if the message was sent from the same place (thread or process). */
  readonly sender: Endpoint | null;
}

type Answer<T> = T | Moved<T>;

/**
 * An actor's handlers. Messages are handled one at a time, in order. If a handler returns a promise, the next message waits for
 * the promise. If it returns a DeferredReply, the next message does not wait. A Moved value is transferred instead of copied. A
 * thrown ServerError is sent as the reply; any other thrown value is a programming error.
 */
export type Behaviour<P> = {
  readonly [K in keyof P]: (
    message: MessageOf<P, K>,
    context: ActorContext,
  ) => Answer<ReplyOf<P, K>> | Promise<Answer<ReplyOf<P, K>>> | DeferredReply<Answer<ReplyOf<P, K>>>;
} & {
  /** Runs once, after the last message. Frees what the actor owns. */
  readonly onStop?: () => void | Promise<void>;
};
