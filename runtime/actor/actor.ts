// Actor: a mailbox and the loop that handles its messages one after another. Only system.ts creates actors. If a handler
// throws, only the message that it handles fails; the loop continues.
import assert from "node:assert";
import type { Clock } from "../clock.ts";
import type { Endpoint } from "../endpoint/endpoint.ts";
import { ServerError } from "../errors.ts";
import type { ActorContext } from "./behaviour.ts";
import { DeferredReply } from "./deferred-reply.ts";
import { Mailbox } from "./mailbox.ts";
import { Moved } from "./moved.ts";
import { failure, type ReplyCallback } from "./ref.ts";

/**
 * Receives programming errors, and the errors of failed tells (messages without a reply). `at` has
 * the form "actor.method at place", where the place is the name of a thread or process.
 */
export type OnError = (error: unknown, at: string) => void;

export interface Message {
  readonly method: string;
  readonly content: unknown;
  readonly sender: Endpoint | null;
  /** Receives the reply; null for a tell (a message without a reply). */
  readonly onReply: ReplyCallback | null;
}

type Handler = (this: unknown, message: unknown, context: ActorContext) => unknown;

export class Actor {
  readonly #name: string;
  readonly #behaviour: object;
  readonly #mailbox: Mailbox<Message>;
  readonly #onError: OnError;
  #isRunning = false;
  #isStopping = false;
  #stopped: Promise<void> | null = null;
  #onIdle: (() => void) | null = null;

  constructor(name: string, behaviour: object, mailboxLimit: number, onError: OnError) {
    this.#name = name;
    this.#behaviour = behaviour;
    this.#mailbox = new Mailbox(mailboxLimit);
    this.#onError = onError;
  }

  post(message: Message): void {
    if (this.#isStopping) {
      this.#fail(message, new ServerError("draining", `actor "${this.#name}" is stopping; it takes no more messages`));
    } else if (!this.#mailbox.put(message)) {
      const text = `the mailbox of "${this.#name}" holds its limit of ${this.#mailbox.limit} messages; try again later`;
      this.#fail(message, new ServerError("mailbox_full", text));
    } else if (!this.#isRunning) {
      this.#isRunning = true;
      // The loop starts in a microtask, because a handler must never run inside the call that has sent the message.
      queueMicrotask(() => void this.#run());
    }
  }

  /**
   * Handles the messages in the mailbox for at most `drainMs`. Then rejects the remaining messages
   * and runs the behaviour's onStop.
   */
  stop(drainMs: number, clock: Clock): Promise<void> {
    this.#isStopping = true;
    this.#stopped ??= this.#stop(drainMs, clock);
    return this.#stopped;
  }

  async #stop(drainMs: number, clock: Clock): Promise<void> {
    if (this.#isRunning) {
      await new Promise<void>((resolve) => {
        const cancel = clock.setTimeout(resolve, drainMs);
        this.#onIdle = () => {
          cancel();
          resolve();
        };
      });
    }
    for (let message = this.#mailbox.take(); message !== undefined; message = this.#mailbox.take()) {
      this.#fail(message, new ServerError("draining", `actor "${this.#name}" stopped before it handled this message`));
    }
    try {
      await (this.#behaviour as { onStop?: () => unknown }).onStop?.();
    } catch (error) {
      this.#onError(error, `${this.#name}.onStop`);
    }
  }

  async #run(): Promise<void> {
    for (let message = this.#mailbox.take(); message !== undefined; message = this.#mailbox.take()) {
      await this.#handle(message);
    }
    this.#isRunning = false;
    this.#onIdle?.();
  }

  async #handle(message: Message): Promise<void> {
    try {
      const handler = handlerOf(this.#behaviour, message.method);
      assert(handler !== null, `actor "${this.#name}" has no method ${message.method}`);
      const value = await handler.call(this.#behaviour, message.content, { sender: message.sender });
      if (value instanceof DeferredReply) void this.#replyLater(message, value.reply);
      else answer(message, value);
    } catch (error) {
      this.#fail(message, error);
    }
  }

  async #replyLater(message: Message, reply: Promise<unknown>): Promise<void> {
    try {
      answer(message, await reply);
    } catch (error) {
      this.#fail(message, error);
    }
  }

  #fail(message: Message, error: unknown): void {
    // Two kinds of errors are expected and not reported: a ServerError that the sender of an ask receives as the reply, and
    // `draining`, because a tell may arrive while the actor stops.
    const isExpected = error instanceof ServerError && (message.onReply !== null || error.code === "draining");
    if (!isExpected) this.#onError(error, `${this.#name}.${message.method}`);
    message.onReply?.(failure(error));
  }
}

function answer({ onReply }: Message, value: unknown): void {
  if (value instanceof Moved) onReply?.({ ok: true, value: value.value }, value.buffers);
  else onReply?.({ ok: true, value });
}

/**
 * Returns the behaviour's handler of this name; null if there is none. Peers must not call onStop or inherited methods, so
 * these names also return null.
 */
function handlerOf(behaviour: object, method: string): Handler | null {
  if (method === "onStop" || method in Object.prototype) return null;
  const handler = (behaviour as Record<string, unknown>)[method];
  return typeof handler === "function" ? (handler as Handler) : null;
}
