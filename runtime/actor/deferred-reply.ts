// Deferred reply: a handler returns it to reply later, when the promise inside resolves. The actor can handle its next messages
// before that. A handler that returns a plain promise blocks them.

export class DeferredReply<T> {
  readonly reply: Promise<T>;

  constructor(reply: Promise<T>) {
    this.reply = reply;
  }
}
