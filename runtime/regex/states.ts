// Deterministic automata over characters as plain data, and their construction state by state. State 0 is the start. Pure.

import { anyChar, type CharSet, unionOf } from "./char-set.ts";
import { RegexProblem } from "./syntax.ts";
import { spend, spendOn } from "./work.ts";

export interface Edge {
  readonly set: CharSet;
  readonly to: number;
}

/** The character sets of a state's edges are disjoint. A text with a character that is in none of them does not match. */
export interface State {
  readonly accepts: boolean;
  readonly edges: readonly Edge[];
}

export type Automaton = readonly State[];

export const maxStates = 4000;

export const noText: Automaton = [{ accepts: false, edges: [] }];
export const anyText: Automaton = [{ accepts: true, edges: [{ set: anyChar, to: 0 }] }];

/**
 * A state found by explore(), before the states are numbered. `Place` is the caller's identification of a state; edges use it
 * for their targets.
 */
interface Described<Place> {
  readonly accepts: boolean;
  readonly edges: Iterable<{ readonly set: CharSet; readonly to: Place }>;
}

/**
 * Returns the automaton with one state for each `Place` (see Described) that is reachable from `start`. Throws RegexProblem
 * above `limit` states.
 */
export function explore<Place>(
  start: Place,
  keyOf: (place: Place) => string | number,
  describe: (place: Place) => Described<Place>,
  limit = maxStates,
): Automaton {
  const numbers = new Map<string | number, number>([[keyOf(start), 0]]);
  const places = [start];
  const states: State[] = [];
  for (let at = 0; at < places.length; at++) {
    const { accepts, edges } = describe(places[at] as Place);
    const byTarget = new Map<number, CharSet[]>();
    spend(4);
    for (const edge of edges) {
      spend(1);
      spendOn(edge.set.length);
      const key = keyOf(edge.to);
      let to = numbers.get(key);
      if (to === undefined) {
        to = places.push(edge.to) - 1;
        numbers.set(key, to);
        if (places.length > limit) throw tooComplex();
      }
      const sets = byTarget.get(to);
      if (sets === undefined) byTarget.set(to, [edge.set]);
      else sets.push(edge.set);
    }
    states.push({ accepts, edges: Array.from(byTarget, ([to, sets]) => ({ to, set: unionOf(sets) })) });
  }
  return states;
}

export function tooComplex(): RegexProblem {
  return new RegexProblem("unsupported", "the pattern is too complex to be enforced; make its repetitions shorter");
}

export function stateOf(automaton: Automaton, at: number): State {
  return automaton[at] as State;
}

/** Returns whether every text is accepted from this state. */
export function isAnyText(automaton: Automaton, at: number): boolean {
  const { accepts, edges } = stateOf(automaton, at);
  const [only] = edges;
  return accepts && edges.length === 1 && only?.to === at && only.set.join() === anyChar.join();
}

/**
 * Returns the ranges of a state's edges in order, each as its first character, its last character and the index of its edge.
 */
export function rangesOfState({ edges }: State): Int32Array {
  let count = 0;
  for (const { set } of edges) count += set.length >> 1;
  spend(count / 4);
  const starts = new Float64Array(count);
  let next = 0;
  edges.forEach(({ set }, edge) => {
    for (let i = 0; i < set.length; i += 2) starts[next++] = (set[i] as number) * edges.length + edge;
  });
  if (edges.length > 1) starts.sort();
  return withEnds(starts, edges);
}

/**
 * Returns the ranges with these sorted starts; see rangesOfState for the form. A start is encoded as
 * (first character of the range) * (number of edges) + (index of the edge).
 */
function withEnds(starts: Float64Array, edges: readonly Edge[]): Int32Array {
  const ranges = new Int32Array(3 * starts.length);
  const seen = new Int32Array(edges.length);
  starts.forEach((start, i) => {
    const edge = start % edges.length;
    const at = seen[edge] as number;
    seen[edge] = at + 2;
    const { set } = edges[edge] as Edge;
    ranges[3 * i] = set[at] as number;
    ranges[3 * i + 1] = set[at + 1] as number;
    ranges[3 * i + 2] = edge;
  });
  return ranges;
}
