// Wide edges: edges of an automaton that accept almost any character. The grammar engine searches its whole vocabulary at each
// place (position in the grammar) with such an edge. So edges with the same characters and target become one rule, which is one
// place. No side effects.

import { charCount } from "./char-set.ts";
import { type Automaton, type Edge, isAnyText } from "./states.ts";
import { spendOn } from "./work.ts";

/** Minimum number of characters of a wide edge. Such an edge allows most tokens of a vocabulary. */
const wideChars = 512;

/** A position in the grammar at which the engine searches its whole vocabulary, because almost any character may follow. */
export interface WidePlace {
  /** Identifies the place: two edges with the same key are one place. */
  readonly key: string;
  /** True if any text may follow, so the place is the same in all automata of a grammar. */
  readonly isCommon: boolean;
}

export const anyTextPlace: WidePlace = { key: "any text", isCommon: true };

/** Returns the places (positions in the grammar) at which almost any character may follow, each once. */
export function widePlaces(automaton: Automaton): readonly WidePlace[] {
  const places = new Map<string, WidePlace>();
  const rules = wideRules(automaton);
  automaton.forEach(({ edges }, at) => {
    for (const edge of edges) {
      if (!isWide(edge)) continue;
      const place =
        rules.get(edge) ?? (isAnyText(automaton, at) ? anyTextPlace : { key: `state ${at}`, isCommon: false });
      places.set(place.key, place);
    }
  });
  return [...places.values()];
}

/** Returns the wide edges that become grammar rules: those to a state that accepts any text, and those that several states share. */
export function wideRules(automaton: Automaton): ReadonlyMap<Edge, WidePlace> {
  const found = new Map<Edge, WidePlace>();
  const counts = new Map<string, number>();
  automaton.forEach(({ edges }, at) => {
    for (const edge of edges) {
      spendOn(2 + edge.set.length);
      // An edge back to its own state gets no separate rule: the engine is fast at repetition only if the state's rule calls itself.
      if (edge.to === at || !isWide(edge)) continue;
      const isCommon = isAnyText(automaton, edge.to);
      const key = `${isCommon ? "any text" : edge.to} behind ${edge.set.join()}`;
      found.set(edge, { key, isCommon });
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
  });
  for (const [edge, { key, isCommon }] of found) if (!isCommon && counts.get(key) === 1) found.delete(edge);
  return found;
}

function isWide({ set }: Edge): boolean {
  return charCount(set) > wideChars;
}
