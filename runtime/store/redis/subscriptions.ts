// Subscriptions of a connection to Redis, by channel. If the connection is lost, the pending subscribe and unsubscribe commands
// are sent again after the reconnect. The commands of one channel are sent one after another, so that an earlier command never
// undoes a later one.

/** Redis client for subscriptions. While the connection is lost, the client remembers its channels, but may reject commands. */
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
  /** Promises of the commands that are being sent, by channel. */
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

  /**
   * Calls the listener each time the subscriptions were restored after a lost connection, because messages may have been
   * missed.
   */
  onBack(listener: () => void): () => void {
    this.#onBack.add(listener);
    return () => void this.#onBack.delete(listener);
  }

  /** Sends the subscribe and unsubscribe commands again that were lost with the connection. Called after each reconnect. */
  async back(): Promise<void> {
    const channels = new Set([...this.#listeners.keys(), ...this.#subscribed]);
    await Promise.all([...channels].map((channel) => this.#settle(channel)));
    for (const listener of this.#onBack) listener();
  }

  /**
   * Subscribes to the channel if it has listeners, and unsubscribes if not. Resolves when this is done, or when a command was
   * lost.
   */
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
      // The command was lost with the connection; back() sends it again.
    } finally {
      this.#sending.delete(channel);
    }
  }

  /** All channels share one function, because the client calls each distinct function once per message. */
  readonly #deliver = (message: string, channel: string): void => {
    for (const listener of this.#listeners.get(channel) ?? []) listener(message);
  };
}
