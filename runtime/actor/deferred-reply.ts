// Owns the answer that takes its time: a handler that returns one lets its actor go on to the next message, and the asker
// waits for the promise inside. What the handler does until it returns is still done alone.

export class DeferredReply<T> {
  readonly reply: Promise<T>;

  constructor(reply: Promise<T>) {
    this.reply = reply;
  }
}
