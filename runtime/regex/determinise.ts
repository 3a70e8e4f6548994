// Determinisation: converts a regular expression to a nondeterministic automaton (NFA), and the NFA to a deterministic one.
// Each state of the result is a set of NFA states. Throws RegexProblem above its limits. No side effects.

import { both, not } from "./automaton.ts";
import { anyChar, type CharSet } from "./char-set.ts";
import { least } from "./least.ts";
import { type Automaton, explore, tooComplex } from "./states.ts";
import type { Regex, RegexNode } from "./syntax.ts";
import { spend, spendOn } from "./work.ts";

const maxNodes = 20_000;
const maxCompared = 32;

/** Whether a pattern must match a part of the text (as in a JSON schema) or the whole text. */
export type Anchoring = "anywhere" | "whole";

/** Returns the automaton of the texts that a regular expression matches. */
export function automatonOf({ node, ahead }: Regex, anchoring: Anchoring): Automaton {
  let result = determinise(anchoring === "whole" ? node : anywhere(node));
  for (const look of ahead) {
    const begins = determinise({ kind: "sequence", parts: [look.node, anything] });
    result = both(result, look.negated ? not(begins) : begins);
  }
  return result;
}

const anything: RegexNode = { kind: "repeat", of: { kind: "set", set: anyChar }, min: 0, max: null };

function anywhere(node: RegexNode): RegexNode {
  return { kind: "sequence", parts: [anything, node, anything] };
}

function determinise(node: RegexNode): Automaton {
  const nfa = new Nfa();
  const start = nfa.state();
  const end = nfa.add(node, start);
  const automaton = explore<StateSet>(
    { states: nfa.closure([start], "start"), isStart: true },
    ({ states, isStart }) => {
      spendOn(2 * states.length);
      return `${isStart ? "^" : ""}${states.join()}`;
    },
    ({ states, isStart }) => ({
      accepts: nfa.closure(states, isStart ? "start+end" : "end").includes(end),
      edges: stepsFrom(states, nfa),
    }),
  );
  return least(automaton);
}

interface StateSet {
  readonly states: readonly number[];
  /** True if nothing has been read yet, so `^` holds. */
  readonly isStart: boolean;
}

interface Step {
  readonly set: CharSet;
  readonly to: StateSet;
}

/** Yields the transitions from a set of NFA states. Characters that the same edges accept form one transition. */
function* stepsFrom(states: readonly number[], nfa: Nfa): Iterable<Step> {
  const targets = targetsBySet(states, nfa);
  for (const { set, takers } of charsByTakers([...targets.keys()], nfa.sets)) {
    const to = takers.flatMap((taker) => targets.get(taker) as readonly number[]);
    yield { set, to: { states: nfa.closure(to, "none"), isStart: false } };
  }
}

/**
 * Returns the targets of all edges of the states, grouped by the number of the edge's character set. Many edges of a pattern
 * share a set.
 */
function targetsBySet(states: readonly number[], nfa: Nfa): ReadonlyMap<number, readonly number[]> {
  const targets = new Map<number, number[]>();
  for (const state of states) {
    const edges = nfa.edges[state] as readonly NfaEdge[];
    spend(edges.length / 2);
    for (const { set, to } of edges) {
      const known = targets.get(set);
      if (known === undefined) targets.set(set, [to]);
      else known.push(to);
    }
  }
  return targets;
}

interface Taken {
  /** Flat list of ranges (first and last character), in ascending order. */
  readonly set: number[];
  /** Numbers of the character sets that contain the characters in `set`. */
  readonly takers: readonly number[];
}

/** A border (start or end of a character range) is stored as one number: character * setRoom + number of the character set. */
const setRoom = 2 * maxNodes;

/** Groups characters by the sets that contain them, in one pass over the sorted borders of all ranges. */
function charsByTakers(numbers: readonly number[], sets: readonly CharSet[]): Iterable<Taken> {
  const taken = new Map<string, Taken>();
  const takers: number[] = [];
  const borders = bordersOf(numbers, sets);
  borders.forEach((border, i) => {
    toggle(takers, border % setRoom);
    const lo = Math.floor(border / setRoom);
    const hi = Math.floor((borders[i + 1] ?? border) / setRoom) - 1;
    if (hi >= lo && takers.length > 0) addRange(taken, takers, lo, hi);
  });
  return taken.values();
}

/** Returns the borders of all ranges, sorted: the first character of each range, and the first character after the range. */
function bordersOf(numbers: readonly number[], sets: readonly CharSet[]): Float64Array {
  const borders: number[] = [];
  for (const number of numbers) {
    (sets[number] as CharSet).forEach((char, i) => {
      borders.push((i % 2 === 0 ? char : char + 1) * setRoom + number);
    });
  }
  spend(borders.length / 4);
  return Float64Array.from(borders).sort();
}

/** Adds a number to a sorted list; removes it if it is already in the list. */
function toggle(numbers: number[], number: number): void {
  let at = numbers.length;
  while (at > 0 && (numbers[at - 1] as number) > number) at--;
  if (numbers[at - 1] === number) numbers.splice(at - 1, 1);
  else numbers.splice(at, 0, number);
}

function addRange(taken: Map<string, Taken>, takers: readonly number[], lo: number, hi: number): void {
  spend(0.5 + takers.length / 4);
  const key = takers.join();
  const known = taken.get(key);
  if (known === undefined) taken.set(key, { set: [lo, hi], takers: takers.slice() });
  else if (known.set.at(-1) === lo - 1) known.set[known.set.length - 1] = hi;
  else known.set.push(lo, hi);
}

interface NfaEdge {
  /** Number of the edge's character set. */
  readonly set: number;
  readonly to: number;
}

/** The assertions that hold at a position between two characters. */
type Place = "none" | "start" | "end" | "start+end";

class Nfa {
  readonly edges: NfaEdge[][] = [];
  readonly sets: CharSet[] = [];
  readonly #setNumbers = new Map<CharSet | string, number>();
  readonly #jumps: { readonly to: number; readonly only: "start" | "end" | null }[][] = [];
  /** For each state, the number of the last closure() call that reached it. */
  #reachedIn: Int32Array = new Int32Array(0);
  #closures = 0;

  state(): number {
    if (this.edges.length >= maxNodes) throw tooComplex();
    this.#jumps.push([]);
    return this.edges.push([]) - 1;
  }

  /** Appends an expression after the state `from`. Returns the state after the expression. */
  add(node: RegexNode, from: number): number {
    spend(1);
    switch (node.kind) {
      case "set": {
        const to = this.state();
        if (node.set.length > 0) this.edges[from]?.push({ set: this.#setNumber(node.set), to });
        return to;
      }
      case "sequence":
        return node.parts.reduce((at, part) => this.add(part, at), from);
      case "choice": {
        const to = this.state();
        for (const option of node.options) this.#jump(this.add(option, this.#jump(from, this.state())), to);
        return to;
      }
      case "repeat":
        return this.#repeat(node, from);
      default:
        return this.#jump(from, this.state(), node.kind);
    }
  }

  /** Returns the same number for equal sets. Large sets are compared only by identity. */
  #setNumber(set: CharSet): number {
    const key = set.length <= maxCompared ? set.join() : set;
    const known = this.#setNumbers.get(key);
    if (known !== undefined) return known;
    const number = this.sets.push(set) - 1;
    this.#setNumbers.set(key, number);
    return number;
  }

  #repeat({ of, min, max }: RegexNode & { kind: "repeat" }, from: number): number {
    let at = from;
    for (let i = 0; i < min; i++) at = this.add(of, at);
    if (max === null) {
      const loop = this.#jump(at, this.state());
      this.#jump(this.add(of, loop), loop);
      return this.#jump(loop, this.state());
    }
    const to = this.state();
    for (let i = min; i < max; i++) {
      this.#jump(at, to);
      at = this.add(of, at);
    }
    return this.#jump(at, to);
  }

  #jump(from: number, to: number, only: "start" | "end" | null = null): number {
    this.#jumps[from]?.push({ to, only });
    return to;
  }

  /** Returns all states that are reachable from `states` without reading a character, sorted. */
  closure(states: readonly number[], place: Place): readonly number[] {
    if (this.#reachedIn.length < this.edges.length) this.#reachedIn = new Int32Array(this.edges.length);
    const closure = ++this.#closures;
    const reached: number[] = [];
    const reach = (state: number): void => {
      if (this.#reachedIn[state] === closure) return;
      this.#reachedIn[state] = closure;
      reached.push(state);
    };
    states.forEach(reach);
    for (const state of reached) {
      const jumps = this.#jumps[state] ?? [];
      spendOn(8 + 4 * jumps.length);
      for (const { to, only } of jumps) if (only === null || place.includes(only)) reach(to);
    }
    spendOn(8 + 2 * states.length);
    return Array.from(Int32Array.from(reached).sort());
  }
}
