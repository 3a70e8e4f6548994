// Owns the types of an actor: its protocol (an interface whose methods take one plain message) and the behaviour that
// implements it. Types only; read by whoever writes an actor or a ref to one.
import type { Endpoint } from "../endpoint/endpoint.ts";
import type { DeferredReply } from "./deferred-reply.ts";
import type { Moved } from "./moved.ts";

/** What P must look like: every method takes ONE plain-data message and answers plain data. */
export type Protocol<P> = { readonly [K in keyof P]: (message: never) => unknown };

export type MessageOf<P, K extends keyof P> = P[K] extends (message: infer M) => unknown ? M : never;
export type ReplyOf<P, K extends keyof P> = P[K] extends (message: never) => infer R ? Awaited<R> : never;

export interface ActorContext {
  /** The link the message came by; null for a message from the same place. */
  readonly sender: Endpoint | null;
}

type Answer<T> = T | Moved<T>;

/**
 * An actor's handlers. One message is handled at a time, in order; the next one waits for a handler's promise, but not for what
 * it returns as Later. What it returns as Moved is not copied on its way. Throwing a ServerError answers the ask with it;
 * throwing anything else is a programmer's mistake.
 */
export type Behaviour<P> = {
  readonly [K in keyof P]: (
    message: MessageOf<P, K>,
    context: ActorContext,
  ) => Answer<ReplyOf<P, K>> | Promise<Answer<ReplyOf<P, K>>> | DeferredReply<Answer<ReplyOf<P, K>>>;
} & {
  /** Runs once, after the last message: frees what the actor owns. */
  readonly onStop?: () => void | Promise<void>;
};
