// Recent clients: those that were added within the last minute. Bounded: the oldest entry is dropped first.

const rememberedMs = 60_000;
const maxRemembered = 1024;

export class RecentClients {
  /** Until when each is remembered, by performance.now(); the latest last. */
  readonly #until = new Map<string, number>();

  add(client: string): void {
    this.#until.delete(client);
    this.#until.set(client, performance.now() + rememberedMs);
    if (this.#until.size <= maxRemembered) return;
    for (const [oldest] of this.#until) {
      this.#until.delete(oldest);
      return;
    }
  }

  has(client: string): boolean {
    const until = this.#until.get(client);
    if (until === undefined) return false;
    if (performance.now() < until) return true;
    this.#until.delete(client);
    return false;
  }
}
