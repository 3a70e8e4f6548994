// Wide edges: edges of an automaton that take almost any character. The grammar engine looks its whole vocabulary up at
// each place with one, so edges with the same characters and target become one rule, which is one place. Pure.

import { charCount } from "./char-set.ts";
import { type Automaton, type Edge, isAnyText } from "./states.ts";
import { spendOn } from "./work.ts";

/** An edge with more characters admits most of a vocabulary. */
const wideChars = 512;

/** A place where the engine looks its vocabulary up. */
export interface WidePlace {
  /** Equal for the same place. */
  readonly key: string;
  /** The place is the same in all automata of a grammar: any text follows. */
  readonly isCommon: boolean;
}

export const anyTextPlace: WidePlace = { key: "any text", isCommon: true };

/** The places of an automaton, each once. */
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

/** The wide edges that become rules: edges to any text, and edges that several states share. */
export function wideRules(automaton: Automaton): ReadonlyMap<Edge, WidePlace> {
  const found = new Map<Edge, WidePlace>();
  const counts = new Map<string, number>();
  automaton.forEach(({ edges }, at) => {
    for (const edge of edges) {
      spendOn(2 + edge.set.length);
      // The engine handles endless repetition quickly only if a rule calls itself.
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
