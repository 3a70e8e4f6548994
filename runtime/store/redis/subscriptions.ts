// Subscriptions of a connection to Redis, by channel. A command that is lost with its connection is sent again when the connection
// is back. The commands of one channel are sent one after another, so that an earlier one never undoes a later one.

/** Client of a connection for subscriptions. While the connection is lost, it keeps its channels, but may reject commands. */
export interface Subscriber {
  subscribe(channel: string, listener: (message: string, channel: string) => void): Promise<void>;
  unsubscribe(channel: string): Promise<void>;
}

type Listener = (message: string) => void;

export class Subscriptions {
  readonly #client: Subscriber;
  /** Channels that have listeners. */
  readonly #listeners = new Map<string, Set<Listener>>();
  /** Channels that the client has subscribed to. */
  readonly #subscribed = new Set<string>();
  /** Channels whose commands are being sent. */
  readonly #sending = new Map<string, Promise<void>>();
  readonly #onBack = new Set<() => void>();

  constructor(client: Subscriber) {
    this.#client = client;
  }

  /** Calls the listener for each message on a channel. The returned function ends the subscription. */
  add(channel: string, listener: Listener): () => void {
    const listeners = this.#listeners.get(channel) ?? new Set();
    this.#listeners.set(channel, listeners.add(listener));
    void this.#settle(channel);
    return () => {
      listeners.delete(listener);
      if (listeners.size > 0 || this.#listeners.get(channel) !== listeners) return;
      this.#listeners.delete(channel);
      void this.#settle(channel);
    };
  }

  /** Calls the listener whenever the subscriptions are back after messages may have been lost. */
  onBack(listener: () => void): () => void {
    this.#onBack.add(listener);
    return () => void this.#onBack.delete(listener);
  }

  /** Sends the lost commands again. Called whenever the connection is back. */
  async back(): Promise<void> {
    const channels = new Set([...this.#listeners.keys(), ...this.#subscribed]);
    await Promise.all([...channels].map((channel) => this.#settle(channel)));
    for (const listener of this.#onBack) listener();
  }

  /** Resolves when the client has subscribed to the channel exactly if it has listeners, or a command was lost. */
  #settle(channel: string): Promise<void> {
    const sending = this.#sending.get(channel) ?? Promise.resolve().then(() => this.#send(channel));
    this.#sending.set(channel, sending);
    return sending;
  }

  async #send(channel: string): Promise<void> {
    try {
      while (this.#listeners.has(channel) !== this.#subscribed.has(channel)) {
        if (this.#listeners.has(channel)) {
          await this.#client.subscribe(channel, this.#deliver);
          this.#subscribed.add(channel);
        } else {
          await this.#client.unsubscribe(channel);
          this.#subscribed.delete(channel);
        }
      }
    } catch {
      // The connection is lost; back() sends the command again.
    } finally {
      this.#sending.delete(channel);
    }
  }

  /** One function for all channels, because the client calls each function that it knows once a message. */
  readonly #deliver = (message: string, channel: string): void => {
    for (const listener of this.#listeners.get(channel) ?? []) listener(message);
  };
}
