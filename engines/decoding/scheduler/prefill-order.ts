// Prefill order: the order in which the prompts of running sequences get tokens of a step. Clients take turns, so a
// client with many long prompts delays no other client. Within a client, steps alternate between two orders: order of
// admission, so that long prompts progress, and shortest remaining prompt first, so that short prompts need not wait
// for long ones.
import { DefaultMap } from "../../../runtime/collections.ts";
import type { Sequence } from "./sequence.ts";

export class PrefillOrder<S extends Sequence> {
  /** For each client with prompts, the step in which it last got tokens. */
  readonly #lastFed = new Map<string, number>();
  #step = 0;
  #shortestFirst = false;
  #hasFed = false;

  /** Returns the prompts in the order in which the next step feeds them. `prompts` must be in order of admission. */
  arrange(prompts: S[]): readonly S[] {
    this.#step++;
    // A step that fed no prompt does not change the order.
    if (this.#hasFed) this.#shortestFirst = !this.#shortestFirst;
    this.#hasFed = false;
    if (this.#shortestFirst) prompts.sort((a, b) => a.pending - b.pending);
    const byClient = new DefaultMap<string, S[]>(() => []);
    for (const prompt of prompts) byClient.get(prompt.client).push(prompt);
    for (const client of this.#lastFed.keys()) if (!byClient.has(client)) this.#lastFed.delete(client);
    return byClient.size <= 1 ? prompts : this.#inTurns(byClient, prompts.length);
  }

  /** Records that a prompt got tokens in this step. */
  fed({ client }: S): void {
    this.#hasFed = true;
    this.#lastFed.set(client, this.#step);
  }

  /**
   * Returns the first prompt of each client, then the second of each, and so on. The client that
   * was fed longest ago comes first.
   */
  #inTurns(byClient: Iterable<[string, readonly S[]]>, count: number): readonly S[] {
    const fedAt = (client: string): number => this.#lastFed.get(client) ?? 0;
    const lanes = [...byClient].sort(([a], [b]) => fedAt(a) - fedAt(b)).map(([, lane]) => lane);
    const ordered: S[] = [];
    for (let round = 0; ordered.length < count; round++) {
      for (const { [round]: prompt } of lanes) if (prompt !== undefined) ordered.push(prompt);
    }
    return ordered;
  }
}
