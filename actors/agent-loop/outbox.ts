// Outbox: a queue to which concurrent producers add events, and from which one consumer takes them in batches.
export class Outbox<Item> {
  #items: Item[] = [];
  #wake: () => void = () => {};

  put(item: Item): void {
    this.#items.push(item);
    this.#wake();
  }

  /**
   * Yields batches of items until `work` has settled and all items are taken. If `work` rejects, throws its error after all
   * items are taken.
   */
  async *until(work: Promise<unknown>): AsyncGenerator<readonly Item[]> {
    let isOver = false;
    const end = (): void => {
      isOver = true;
      this.#wake();
    };
    work.then(end, end);
    while (!isOver || this.#items.length > 0) {
      if (this.#items.length === 0) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        continue;
      }
      const batch = this.#items;
      this.#items = [];
      yield batch;
    }
    await work;
  }
}
