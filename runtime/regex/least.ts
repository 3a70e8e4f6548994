// Minimisation of an automaton (after Hopcroft). Starts with two parts: accepting states and the other states. A part is split
// if the same character leads its states to different parts, until no part can be split. After a split, only the states that
// lead into the smaller pieces are examined again, so an edge is visited a logarithmic number of times. No side effects.

import { DefaultMap } from "../collections.ts";
import { type Automaton, explore, noText, rangesOfState, type State, stateOf } from "./states.ts";
import { spend, spendOn } from "./work.ts";

/** Returns the automaton with the fewest states for the same texts, without dead ends. */
export function least(automaton: Automaton): Automaton {
  spend(20);
  const live = trimmed(automaton);
  const parts = new Partition(live).parts();
  return merged(live, parts);
}

/**
 * Removes states that are not reachable or from which no accepting state is reachable. The remaining states are numbered in the
 * order in which they are reached.
 */
function trimmed(automaton: Automaton): Automaton {
  const ending = endingStates(automaton);
  if (ending[0] === 0) return noText;
  const numbers = new Int32Array(automaton.length).fill(-1);
  numbers[0] = 0;
  const order = [0];
  for (const at of order) {
    for (const { to } of stateOf(automaton, at).edges) {
      if (ending[to] === 1 && numbers[to] === -1) numbers[to] = order.push(to) - 1;
    }
  }
  return order.map((at) => {
    const { accepts, edges } = stateOf(automaton, at);
    spendOn(16 + 8 * edges.length);
    const kept = edges.filter(({ to }) => ending[to] === 1);
    return { accepts, edges: kept.map(({ set, to }) => ({ set, to: numbers[to] as number })) };
  });
}

/** Returns, for each state, 1 if some text is accepted from it. */
function endingStates(automaton: Automaton): Uint8Array {
  const ending = new Uint8Array(automaton.length);
  const sources = sourcesOf(automaton);
  const todo: number[] = [];
  const add = (at: number): void => {
    if (ending[at] === 1) return;
    ending[at] = 1;
    todo.push(at);
  };
  automaton.forEach(({ accepts }, at) => {
    if (accepts) add(at);
  });
  for (let at = todo.pop(); at !== undefined; at = todo.pop()) sources.of(at).forEach(add);
  return ending;
}

/** Returns, for each state, the states with edges to it. */
function sourcesOf(automaton: Automaton): { of(at: number): Int32Array } {
  const starts = new Int32Array(automaton.length + 1);
  let count = 0;
  for (const { edges } of automaton) {
    for (const { to } of edges) starts[to + 1] = (starts[to + 1] as number) + 1;
    count += edges.length;
  }
  spendOn(2 * (automaton.length + count));
  for (let at = 0; at < automaton.length; at++) starts[at + 1] = (starts[at + 1] as number) + (starts[at] as number);
  const next = starts.slice();
  const sources = new Int32Array(count);
  automaton.forEach(({ edges }, from) => {
    for (const { to } of edges) {
      sources[next[to] as number] = from;
      next[to] = (next[to] as number) + 1;
    }
  });
  return { of: (at) => sources.subarray(starts[at], starts[at + 1]) };
}

/** States of one part of the partition that are equivalent so far: each character leads all of them to the same part. */
interface Group {
  readonly part: number;
  readonly runs: readonly number[];
  readonly states: number[];
}

/** A partition of the states. States in the same part may be equivalent; states in different parts are not. */
class Partition {
  /** For each state, its ranges of characters in order, each as first character, last character and target state. */
  readonly #ranges: readonly Int32Array[];
  readonly #sources: { of(at: number): Int32Array };
  readonly #partOf: Int32Array;
  /** The states, grouped by part, and the position of each state. */
  readonly #states: Int32Array;
  readonly #places: Int32Array;
  /** For each part, its first position in `#states`, and the position after its last one. */
  readonly #starts: number[] = [];
  readonly #ends: number[] = [];

  constructor(automaton: Automaton) {
    this.#ranges = automaton.map(targetRanges);
    this.#sources = sourcesOf(automaton);
    this.#partOf = new Int32Array(automaton.length);
    const numbers = automaton.map((_, at) => at);
    this.#states = Int32Array.from(
      numbers.sort((a, b) => Number(automaton[a]?.accepts) - Number(automaton[b]?.accepts)),
    );
    this.#places = new Int32Array(automaton.length);
    this.#states.forEach((at, place) => {
      this.#places[at] = place;
    });
    const refusing = automaton.filter(({ accepts }) => !accepts).length;
    this.#setPart(0, 0, refusing);
    this.#setPart(1, refusing, automaton.length);
  }

  /** Splits parts until no part splits any more. Returns the part of each state. */
  parts(): Int32Array {
    let moved: readonly number[] = Array.from(this.#states);
    while (moved.length > 0) {
      const groups = this.#groups(this.#leadingTo(moved));
      moved = [...groups].flatMap((ofPart) => this.#split(ofPart));
    }
    return this.#partOf;
  }

  /** Returns the states with edges to `states`. Omits a state that is alone in its part, because such a part cannot split. */
  #leadingTo(states: readonly number[]): ReadonlySet<number> {
    const found = new Set<number>();
    for (const at of states) {
      const sources = this.#sources.of(at);
      spendOn(1 + 4 * sources.length);
      for (const source of sources) {
        const part = this.#partOf[source] as number;
        if ((this.#ends[part] as number) - (this.#starts[part] as number) > 1) found.add(source);
      }
    }
    return found;
  }

  /** Groups the states by part, and within each part by the parts to which their characters lead. Yields the groups of each part. */
  #groups(states: ReadonlySet<number>): Iterable<readonly Group[]> {
    const byHash = new DefaultMap<number, Group[]>(() => []);
    const byPart = new DefaultMap<number, Group[]>(() => []);
    for (const at of states) {
      const part = this.#partOf[at] as number;
      const runs = this.#runs(at);
      const hash = hashOf(part, runs);
      const alike = byHash.get(hash);
      const known = alike.find((group) => group.part === part && areSame(group.runs, runs));
      spend(1);
      spendOn(2 * runs.length);
      if (known !== undefined) known.states.push(at);
      else {
        const group = { part, runs, states: [at] };
        alike.push(group);
        byPart.get(part).push(group);
      }
    }
    return byPart.values();
  }

  /**
   * Returns a state's character ranges as a flat list: first character, last character, part that the range leads to. Adjacent
   * ranges that lead to the same part are merged.
   */
  #runs(at: number): readonly number[] {
    const ranges = this.#ranges[at] as Int32Array;
    const runs: number[] = [];
    for (let i = 0; i < ranges.length; i += 3) {
      const [lo, hi] = [ranges[i] as number, ranges[i + 1] as number];
      const part = this.#partOf[ranges[i + 2] as number] as number;
      const last = runs.length - 1;
      if (runs[last] === part && runs[last - 1] === lo - 1) runs[last - 1] = hi;
      else runs.push(lo, hi, part);
    }
    return runs;
  }

  /** Splits a part into its groups and the remaining states. Returns the states of all resulting parts except the largest. */
  #split(groups: readonly Group[]): readonly number[] {
    const part = groups[0]?.part as number;
    const end = this.#ends[part] as number;
    let place = this.#starts[part] as number;
    const cuts = [place];
    for (const { states } of groups) {
      for (const at of states) this.#swap(this.#places[at] as number, place++);
      cuts.push(place);
    }
    // The remaining states have no edge to a state whose part has just changed. They form one more part.
    if (place < end) cuts.push(end);
    const pieces = cuts.slice(1).map((to, i) => ({ from: cuts[i] as number, to }));
    pieces.sort((one, other) => other.to - other.from - (one.to - one.from));
    const [largest, ...others] = pieces;
    this.#starts[part] = largest?.from as number;
    this.#ends[part] = largest?.to as number;
    for (const { from, to } of others) this.#setPart(this.#starts.length, from, to);
    return others.flatMap(({ from, to }) => Array.from(this.#states.subarray(from, to)));
  }

  #setPart(part: number, from: number, to: number): void {
    this.#starts[part] = from;
    this.#ends[part] = to;
    for (let place = from; place < to; place++) this.#partOf[this.#states[place] as number] = part;
  }

  #swap(place: number, other: number): void {
    const [at, there] = [this.#states[place] as number, this.#states[other] as number];
    this.#states[place] = there;
    this.#states[other] = at;
    this.#places[there] = place;
    this.#places[at] = other;
  }
}

function targetRanges(state: State): Int32Array {
  const ranges = rangesOfState(state);
  for (let i = 2; i < ranges.length; i += 3) ranges[i] = state.edges[ranges[i] as number]?.to as number;
  return ranges;
}

function hashOf(part: number, runs: readonly number[]): number {
  let hash = part;
  for (const number of runs) hash = Math.imul(hash ^ number, 0x9e3779b1) ^ (hash >>> 15);
  return hash;
}

function areSame(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((number, i) => number === b[i]);
}

/**
 * Returns an automaton with one state for each part, in the order in which they are reached. The first
 * state of a part represents it.
 */
function merged(automaton: Automaton, parts: Int32Array): Automaton {
  const first = new Map<number, number>();
  parts.forEach((part, at) => {
    if (!first.has(part)) first.set(part, at);
  });
  if (first.size === automaton.length) return automaton;
  return explore<number>(
    parts[0] as number,
    (part) => part,
    (part) => {
      const { accepts, edges } = stateOf(automaton, first.get(part) as number);
      return { accepts, edges: edges.map(({ set, to }) => ({ set, to: parts[to] as number })) };
    },
    Number.POSITIVE_INFINITY,
  );
}
