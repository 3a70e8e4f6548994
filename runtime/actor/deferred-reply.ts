// Deferred reply: the return value of a handler that replies later, when the promise in `reply` resolves. Meanwhile the actor
// handles its next messages. A handler that returns a plain promise blocks the next messages.

export class DeferredReply<T> {
  readonly reply: Promise<T>;

  constructor(reply: Promise<T>) {
    this.reply = reply;
  }
}
