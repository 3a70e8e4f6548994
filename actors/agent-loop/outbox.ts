// Outbox: a queue to which concurrent producers add events, and from which one consumer reads batches.
export class Outbox<Item> {
  #items: Item[] = [];
  #wake: () => void = () => {};

  put(item: Item): void {
    this.#items.push(item);
    this.#wake();
  }

  /**
   * Yields batches of items until `work` has settled and the queue is empty. If `work` rejects, its error is thrown after the
   * last item.
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
