// Messages that are logged once. Their number is bounded, because others may cause them.

const MAX_MESSAGES = 100;

export class SaidOnce {
  readonly #said = new Set<string>();

  /** Returns whether the message has not been logged; false if too many others have been. */
  isNew(message: string): boolean {
    if (this.#said.has(message) || this.#said.size >= MAX_MESSAGES) return false;
    this.#said.add(message);
    return true;
  }
}
