// Messages that are logged only once. Their number is limited, because another program (such as an MCP server) may
// cause any number of different messages.

const MAX_MESSAGES = 100;

export class SaidOnce {
  readonly #said = new Set<string>();

  /** Returns true if the message is new and must be logged. Returns false for all messages above the limit. */
  isNew(message: string): boolean {
    if (this.#said.has(message) || this.#said.size >= MAX_MESSAGES) return false;
    this.#said.add(message);
    return true;
  }
}
