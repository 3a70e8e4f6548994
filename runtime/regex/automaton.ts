// Operations on deterministic automata: combinations (both, not) and queries. An automaton describes the strings of a schema,
// the keys of an object or the digits of a number. No side effects.

import { anyChar, type CharSet, complement, hasChar, unionOf } from "./char-set.ts";
import { least } from "./least.ts";
import {
  type Automaton,
  anyText,
  explore,
  maxStates,
  noText,
  rangesOfState,
  type State,
  stateOf,
  tooComplex,
} from "./states.ts";
import { spend, spendOn } from "./work.ts";

/** Returns the automaton of the texts that match both automata. */
export function both(a: Automaton, b: Automaton): Automaton {
  if (a === anyText) return b;
  if (b === anyText) return a;
  const [left, right] = [new Ranges(a), new Ranges(b)];
  const product = explore<readonly [number, number]>(
    [0, 0],
    ([i, j]) => i * b.length + j,
    ([i, j]) => ({
      accepts: stateOf(a, i).accepts && stateOf(b, j).accepts,
      edges: commonEdges(stateOf(a, i), stateOf(b, j), left.of(i), right.of(j)),
    }),
    maxStates * 4,
  );
  const small = least(product);
  if (small.length > maxStates) throw tooComplex();
  return small;
}

/** Cache of the character ranges on the edges of an automaton's states (see rangesOfState). */
class Ranges {
  readonly #automaton: Automaton;
  readonly #known: Int32Array[] = [];

  constructor(automaton: Automaton) {
    this.#automaton = automaton;
  }

  of(at: number): Int32Array {
    this.#known[at] ??= rangesOfState(stateOf(this.#automaton, at));
    return this.#known[at];
  }
}

/**
 * Returns the characters that two edges have in common, for each pair of edges with one edge from each state. Merges the two
 * sorted lists of ranges in one pass.
 */
function commonEdges(a: State, b: State, left: Int32Array, right: Int32Array) {
  spend((left.length + right.length) / 8);
  const sets = new Map<number, number[]>();
  for (let i = 0, j = 0; i < left.length && j < right.length; ) {
    const lo = Math.max(left[i] as number, right[j] as number);
    const hi = Math.min(left[i + 1] as number, right[j + 1] as number);
    if (lo <= hi) {
      const key = (left[i + 2] as number) * b.edges.length + (right[j + 2] as number);
      const set = sets.get(key);
      if (set === undefined) sets.set(key, [lo, hi]);
      else set.push(lo, hi);
    }
    if ((left[i + 1] as number) < (right[j + 1] as number)) i += 3;
    else j += 3;
  }
  const inOrder = [...sets].sort(([one], [other]) => one - other);
  return inOrder.map(([key, set]): { set: CharSet; to: readonly [number, number] } => {
    const [from, into] = [a.edges[Math.floor(key / b.edges.length)], b.edges[key % b.edges.length]];
    return { set, to: [from?.to as number, into?.to as number] };
  });
}

/** Returns the automaton of the texts that do not match the given automaton. */
export function not(automaton: Automaton): Automaton {
  const sink = automaton.length;
  const states = automaton.map(({ accepts, edges }) => {
    const rest = complement(unionOf(edges.map((edge) => edge.set)));
    spend(1 + edges.length);
    return { accepts: !accepts, edges: rest.length === 0 ? edges : [...edges, { set: rest, to: sink }] };
  });
  states.push({ accepts: true, edges: [{ set: anyChar, to: sink }] });
  return least(states);
}

/** Returns the automaton of texts of `min` to `max` characters; null = no upper bound. */
export function ofLength(min: number, max: number | null): Automaton {
  const last = max ?? min;
  const states: State[] = [];
  for (let count = 0; count <= last; count++) {
    const to = count < last ? count + 1 : max === null ? count : -1;
    states.push({ accepts: count >= min, edges: to === -1 ? [] : [{ set: anyChar, to }] });
  }
  return states.length === 0 ? noText : states;
}

export function accepts(automaton: Automaton, text: string): boolean {
  let at = 0;
  for (const char of text) {
    const code = char.codePointAt(0) as number;
    const { edges } = stateOf(automaton, at);
    const index = edges.findIndex(({ set }) => hasChar(set, code));
    spendOn(2 + (index === -1 ? edges.length : index));
    if (index === -1) return false;
    at = edges[index]?.to as number;
  }
  return stateOf(automaton, at).accepts;
}

export function isEmpty(automaton: Automaton): boolean {
  return !distances(automaton).some((_, at) => stateOf(automaton, at).accepts);
}

/**
 * Returns the lengths of the shortest and the longest text that match the automaton. max is Infinity if there is no longest
 * text. The automaton must be minimal.
 */
export function lengths(automaton: Automaton): { min: number; max: number } {
  let min = Number.POSITIVE_INFINITY;
  distances(automaton).forEach((distance, at) => {
    if (stateOf(automaton, at).accepts) min = Math.min(min, distance);
  });
  return { min, max: longest(automaton) };
}

/** Returns, for each state, the minimum number of characters from the start state to this state; undefined if not reachable. */
function distances(automaton: Automaton): readonly number[] {
  const distance: number[] = [];
  distance[0] = 0;
  const order = [0];
  for (const at of order) {
    const { edges } = stateOf(automaton, at);
    spendOn(4 + 4 * edges.length);
    for (const { to } of edges) {
      if (distance[to] !== undefined) continue;
      distance[to] = (distance[at] as number) + 1;
      order.push(to);
    }
  }
  return distance;
}

function longest(automaton: Automaton): number {
  const done = new Map<number, number>();
  const open: { at: number; next: number; best: number }[] = [{ at: 0, next: 0, best: 0 }];
  const onPath = new Set([0]);
  for (let top = open.at(-1); top !== undefined; top = open.at(-1)) {
    const edge = stateOf(automaton, top.at).edges[top.next++];
    spendOn(4);
    if (edge === undefined) {
      done.set(top.at, top.best);
      onPath.delete(top.at);
      open.pop();
      const parent = open.at(-1);
      if (parent !== undefined) parent.best = Math.max(parent.best, top.best + 1);
    } else if (onPath.has(edge.to)) return Number.POSITIVE_INFINITY;
    else if (done.has(edge.to)) top.best = Math.max(top.best, (done.get(edge.to) as number) + 1);
    else {
      onPath.add(edge.to);
      open.push({ at: edge.to, next: 0, best: 0 });
    }
  }
  return done.get(0) as number;
}
