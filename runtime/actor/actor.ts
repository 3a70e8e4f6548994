// Owns one running actor: its mailbox and the loop that handles one message after another. Created by system.ts only.
// A handler that throws ends its own message, never the loop.
import assert from "node:assert";
import type { Clock } from "../clock.ts";
import type { Endpoint } from "../endpoint/endpoint.ts";
import { ServerError } from "../errors.ts";
import type { ActorContext } from "./behaviour.ts";
import { DeferredReply } from "./deferred-reply.ts";
import { Mailbox } from "./mailbox.ts";
import { Moved } from "./moved.ts";
import { failure, type ReplyCallback } from "./ref.ts";

/** Hears of failures nobody waits for, and of programmer mistakes; `at` is "actor.method at place". */
export type OnError = (error: unknown, at: string) => void;

/** One message on its way through a mailbox. */
export interface Message {
  readonly method: string;
  readonly message: unknown;
  readonly sender: Endpoint | null;
  /** Null for a tell. */
  readonly settle: ReplyCallback | null;
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

  post(letter: Message): void {
    if (this.#isStopping) {
      this.#fail(letter, new ServerError("draining", `actor "${this.#name}" is stopping; it takes no more messages`));
    } else if (!this.#mailbox.put(letter)) {
      const text = `the mailbox of "${this.#name}" holds its limit of ${this.#mailbox.limit} messages; try again later`;
      this.#fail(letter, new ServerError("mailbox_full", text));
    } else if (!this.#isRunning) {
      this.#isRunning = true;
      // In a microtask: a handler must never run inside the call that sent it a message.
      queueMicrotask(() => void this.#run());
    }
  }

  /** Handles what is in the mailbox, for at most `drainMs`, then refuses the rest and runs the behaviour's onStop. */
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
    for (let letter = this.#mailbox.take(); letter !== undefined; letter = this.#mailbox.take()) {
      this.#fail(letter, new ServerError("draining", `actor "${this.#name}" stopped before it came to this message`));
    }
    try {
      await (this.#behaviour as { onStop?: () => unknown }).onStop?.();
    } catch (error) {
      this.#onError(error, `${this.#name}.onStop`);
    }
  }

  async #run(): Promise<void> {
    for (let letter = this.#mailbox.take(); letter !== undefined; letter = this.#mailbox.take()) {
      await this.#handle(letter);
    }
    this.#isRunning = false;
    this.#onIdle?.();
  }

  async #handle(letter: Message): Promise<void> {
    try {
      const handler = handlerOf(this.#behaviour, letter.method);
      assert(handler !== null, `actor "${this.#name}" has no method ${letter.method}`);
      const value = await handler.call(this.#behaviour, letter.message, { sender: letter.sender });
      if (value instanceof DeferredReply) void this.#settleLater(letter, value.reply);
      else answer(letter, value);
    } catch (error) {
      this.#fail(letter, error);
    }
  }

  async #settleLater(letter: Message, reply: Promise<unknown>): Promise<void> {
    try {
      answer(letter, await reply);
    } catch (error) {
      this.#fail(letter, error);
    }
  }

  #fail(letter: Message, error: unknown): void {
    // An asker is told, and hears it there. A tell that comes while its actor stops has nothing left to do.
    const isExpected = error instanceof ServerError && (letter.settle !== null || error.code === "draining");
    if (!isExpected) this.#onError(error, `${this.#name}.${letter.method}`);
    letter.settle?.(failure(error));
  }
}

function answer({ settle }: Message, value: unknown): void {
  if (value instanceof Moved) settle?.({ ok: true, value: value.value }, value.buffers);
  else settle?.({ ok: true, value });
}

/** The behaviour's own handler: what peers name must not reach onStop or what every object inherits. */
function handlerOf(behaviour: object, method: string): Handler | null {
  if (method === "onStop" || method in Object.prototype) return null;
  const handler = (behaviour as Record<string, unknown>)[method];
  return typeof handler === "function" ? (handler as Handler) : null;
}
