// Passage selection within a budget of characters: the best passages of all pages, in the order in which they appear on their page.
import { wholeLength } from "./passages.ts";
import type { Passage } from "./scores.ts";

const gap = "\n\n";
/** Minimum length in characters of a truncated passage. If less of the budget is left, longer passages are skipped. */
const minPart = 80;

export interface SelectedPage {
  /** Index of the page, as in its passages. */
  readonly page: number;
  readonly content: string;
}

/**
 * Selects passages. Each matching page first gets its best passage; then the best of the remaining passages are added. Returns
 * the pages, best first. All contents together have at most `budget` characters.
 */
export function selectPassages(
  passages: readonly Passage[],
  scores: readonly number[],
  budget: number,
): readonly SelectedPage[] {
  const order = [...passages.keys()].sort((a, b) => (scores[b] as number) - (scores[a] as number) || a - b);
  const pageOf = (at: number): number => (passages[at] as Passage).page;
  const seen = new Set<number>();
  const best = order.filter((at) => seen.size < seen.add(pageOf(at)).size);
  const chosen = new Map<number, string>();
  const begun = new Set<number>();
  let left = budget;
  const matching = best.filter((at) => (scores[at] as number) > 0);
  for (const at of new Set([...matching, ...order])) {
    const { page, text } = passages[at] as Passage;
    const separator = begun.has(page) ? gap.length : 0;
    const room = left - separator;
    if (room < Math.min(minPart, text.length)) continue;
    const part = text.slice(0, wholeLength(text, Math.min(text.length, room)));
    chosen.set(at, part);
    begun.add(page);
    left -= part.length + separator;
  }
  return best.map(pageOf).map((page) => ({ page, content: contentOf(page, chosen, pageOf) }));
}

function contentOf(page: number, chosen: ReadonlyMap<number, string>, pageOf: (at: number) => number): string {
  return [...chosen]
    .filter(([at]) => pageOf(at) === page)
    .sort(([a], [b]) => a - b)
    .map(([, part]) => part)
    .join(gap);
}
