// Deferred reply: the asker waits for the promise inside, and the actor handles its next messages meanwhile. Until the handler
// returns, no other message is handled.

export class DeferredReply<T> {
  readonly reply: Promise<T>;

  constructor(reply: Promise<T>) {
    this.reply = reply;
  }
}
