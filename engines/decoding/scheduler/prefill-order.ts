// Owns the order in which the prompts of running sequences get their share of a step. Used by the scheduler only. Clients
// take turns, so that one with many long prompts delays nobody else's. Within a client, one step serves them in order of
// admission and the next one by what is left of them: long ones go on, short ones get by.
import { DefaultMap } from "../../../runtime/collections.ts";
import type { Sequence } from "./sequence.ts";

export class PrefillOrder<S extends Sequence> {
  /** The step in which a client's prompts last got tokens, for those that have prompts. */
  readonly #lastFed = new Map<string, number>();
  #step = 0;
  #shortestFirst = false;
  #hasFed = false;

  /** Sorts the prompts that are in order of admission, for one step; fed() is told what came of it. */
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

  fed(prompt: S): void {
    this.#hasFed = true;
    this.#lastFed.set(prompt.client, this.#step);
  }

  /** The first of each client, then the second of each, and so on; the client that was fed longest ago leads. */
  #inTurns(byClient: Iterable<[string, readonly S[]]>, count: number): readonly S[] {
    const fedAt = (client: string): number => this.#lastFed.get(client) ?? 0;
    const lanes = [...byClient].sort(([a], [b]) => fedAt(a) - fedAt(b)).map(([, lane]) => lane);
    const ordered: S[] = [];
    for (let round = 0; ordered.length < count; round++) {
      for (const lane of lanes) {
        const prompt = lane[round];
        if (prompt !== undefined) ordered.push(prompt);
      }
    }
    return ordered;
  }
}
