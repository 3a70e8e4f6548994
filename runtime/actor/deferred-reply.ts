// Deferred reply: a handler returns it to reply later, when the promise inside resolves. Meanwhile the actor handles its next
// messages. Until the handler returns, no other message is handled.

export class DeferredReply<T> {
  readonly reply: Promise<T>;

  constructor(reply: Promise<T>) {
    this.reply = reply;
  }
}
