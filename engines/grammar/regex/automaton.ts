// Owns deterministic automata over characters: made from regular expressions, combined (both, not, trimmed, least), asked
// about. They carry what a schema says of a string, of an object's keys or of a number's digits. Pure; state 0 is the start.
import { spend } from "../work.ts";
import { anyChar, type CharSet, complement, hasChar, intersection, rangesOf, union } from "./char-set.ts";
import { RegexProblem } from "./syntax.ts";

export interface Edge {
  readonly set: CharSet;
  readonly to: number;
}

/** The sets of a state's edges are disjoint; what is in none of them ends the text without a match. */
export interface State {
  readonly accepts: boolean;
  readonly edges: readonly Edge[];
}

export type Automaton = readonly State[];

export const maxStates = 4000;
/** Refinements beyond which an automaton stays as large as it is. */
const maxRefinements = 64;

export const noText: Automaton = [{ accepts: false, edges: [] }];
export const anyText: Automaton = [{ accepts: true, edges: [{ set: anyChar, to: 0 }] }];

/** What is known of one state while an automaton is explored, its targets by their own descriptions. */
interface Described<Place> {
  readonly accepts: boolean;
  readonly edges: Iterable<{ readonly set: CharSet; readonly to: Place }>;
}

/** The automaton of all places that can be reached from `start`. */
export function explore<Place>(
  start: Place,
  keyOf: (place: Place) => string,
  describe: (place: Place) => Described<Place>,
  limit = maxStates,
): Automaton {
  const numbers = new Map([[keyOf(start), 0]]);
  const places = [start];
  const states: State[] = [];
  for (let at = 0; at < places.length; at++) {
    const { accepts, edges } = describe(places[at] as Place);
    const byTarget = new Map<number, CharSet[]>();
    spend(1);
    for (const edge of edges) {
      spend(1 + edge.set.length);
      const key = keyOf(edge.to);
      let to = numbers.get(key);
      if (to === undefined) {
        to = places.push(edge.to) - 1;
        numbers.set(key, to);
        if (places.length > limit) throw tooComplex();
      }
      byTarget.set(to, [...(byTarget.get(to) ?? []), edge.set]);
    }
    states.push({ accepts, edges: [...byTarget].map(([to, sets]) => ({ to, set: union(...sets) })) });
  }
  return states;
}

export function tooComplex(): RegexProblem {
  return new RegexProblem("unsupported", "the pattern is too complex to be enforced; make its repetitions shorter");
}

/** Texts that match both. */
export function both(a: Automaton, b: Automaton, limit = maxStates): Automaton {
  if (a === anyText) return b;
  if (b === anyText) return a;
  const product = explore<readonly [number, number]>(
    [0, 0],
    (pair) => pair.join(),
    ([i, j]) => {
      const [left, right] = [stateOf(a, i), stateOf(b, j)];
      return { accepts: left.accepts && right.accepts, edges: commonEdges(left, right) };
    },
    limit * 4,
  );
  const small = least(product);
  if (small.length > limit) throw tooComplex();
  return small;
}

function* commonEdges(a: State, b: State): Iterable<{ set: CharSet; to: readonly [number, number] }> {
  spend(a.edges.length * b.edges.length);
  for (const left of a.edges) {
    for (const right of b.edges) {
      const set = intersection(left.set, right.set);
      if (set.length > 0) yield { set, to: [left.to, right.to] };
    }
  }
}

/** Texts that do not match. */
export function not(automaton: Automaton): Automaton {
  const sink = automaton.length;
  const states = automaton.map(({ accepts, edges }) => {
    const rest = complement(union(...edges.map((edge) => edge.set)));
    return { accepts: !accepts, edges: rest.length === 0 ? edges : [...edges, { set: rest, to: sink }] };
  });
  return least([...states, { accepts: true, edges: [{ set: anyChar, to: sink }] }]);
}

/** These texts and no others. */
export function ofTexts(texts: Iterable<string>): Automaton {
  const all = [...texts].map((text) => [...text].map((char) => char.codePointAt(0) as number));
  return least(
    explore<readonly (readonly number[])[]>(
      all,
      (rests) => rests.map((rest) => rest.join()).join(";") + (rests.some((rest) => rest.length === 0) ? "!" : ""),
      (rests) => ({ accepts: rests.some((rest) => rest.length === 0), edges: firstChars(rests) }),
      100_000,
    ),
  );
}

function* firstChars(
  rests: readonly (readonly number[])[],
): Iterable<{ set: CharSet; to: readonly (readonly number[])[] }> {
  const byChar = new Map<number, number[][]>();
  for (const [char, ...rest] of rests) {
    if (char !== undefined) byChar.set(char, [...(byChar.get(char) ?? []), rest]);
  }
  for (const [char, to] of byChar) yield { set: [char, char], to };
}

/** Texts of so many characters. */
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
    const edge = stateOf(automaton, at).edges.find(({ set }) => hasChar(set, code));
    if (edge === undefined) return false;
    at = edge.to;
  }
  return stateOf(automaton, at).accepts;
}

export function isEmpty(automaton: Automaton): boolean {
  return !least(automaton).some((state) => state.accepts);
}

/** Lengths of the shortest and the longest text that match; max is Infinity where there is none. Of a least automaton. */
export function lengths(automaton: Automaton): { min: number; max: number } {
  const distance = new Map([[0, 0]]);
  const order = [0];
  for (const at of order) {
    for (const { to } of stateOf(automaton, at).edges) {
      if (distance.has(to)) continue;
      distance.set(to, (distance.get(at) as number) + 1);
      order.push(to);
    }
  }
  const ends = order.filter((at) => stateOf(automaton, at).accepts).map((at) => distance.get(at) as number);
  return { min: Math.min(...ends), max: longest(automaton) };
}

function longest(automaton: Automaton): number {
  const done = new Map<number, number>();
  const open: { at: number; next: number; best: number }[] = [{ at: 0, next: 0, best: 0 }];
  const onPath = new Set([0]);
  for (let top = open.at(-1); top !== undefined; top = open.at(-1)) {
    const edge = stateOf(automaton, top.at).edges[top.next++];
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

/** The same texts by the fewest states, none of which is a dead end. */
export function least(automaton: Automaton): Automaton {
  const live = trimmed(automaton);
  let classes = live.map((state): number => (state.accepts ? 1 : 0));
  let count = new Set(classes).size;
  for (let round = 0; round < maxRefinements; round++) {
    for (const state of live) spend(1 + 2 * state.edges.length);
    const signatures = live.map((state, at) => signature(state, classes, at));
    const numbers = new Map<string, number>();
    const next = signatures.map((key) => numbers.get(key) ?? numbers.set(key, numbers.size).size - 1);
    if (numbers.size === count) return merged(live, next);
    classes = next;
    count = numbers.size;
  }
  return live;
}

function signature(state: State, classes: readonly number[], at: number): string {
  const sets = new Map<number, CharSet[]>();
  for (const { set, to } of state.edges) {
    const target = classes[to] as number;
    sets.set(target, [...(sets.get(target) ?? []), set]);
  }
  const edges = [...sets]
    .sort((a, b) => a[0] - b[0])
    .map(([to, parts]) => `${to}:${parts.length === 1 ? parts[0] : union(...parts)}`);
  return `${classes[at]}|${edges.join("|")}`;
}

function merged(automaton: Automaton, classes: readonly number[]): Automaton {
  const representative = new Map<number, number>();
  classes.forEach((name, at) => {
    if (!representative.has(name)) representative.set(name, at);
  });
  return explore<number>(
    classes[0] as number,
    String,
    (name) => {
      const { accepts, edges } = stateOf(automaton, representative.get(name) as number);
      return { accepts, edges: edges.map(({ set, to }) => ({ set, to: classes[to] as number })) };
    },
    Number.POSITIVE_INFINITY,
  );
}

/** Without the states from which nothing is accepted. */
function trimmed(automaton: Automaton): Automaton {
  const sources = automaton.map((): number[] => []);
  automaton.forEach((state, at) => {
    for (const { to } of state.edges) sources[to]?.push(at);
  });
  const ending = new Set<number>();
  const todo = automaton.flatMap((state, at) => (state.accepts ? [at] : []));
  for (let at = todo.pop(); at !== undefined; at = todo.pop()) {
    if (ending.has(at)) continue;
    ending.add(at);
    todo.push(...(sources[at] as number[]));
  }
  if (!ending.has(0)) return noText;
  return explore<number>(
    0,
    String,
    (at) => {
      const { accepts, edges } = stateOf(automaton, at);
      return { accepts, edges: edges.filter(({ to }) => ending.has(to)) };
    },
    Number.POSITIVE_INFINITY,
  );
}

export function stateOf(automaton: Automaton, at: number): State {
  return automaton[at] as State;
}

/** Where a set is split so that each piece is inside or outside every edge. */
export function boundaries(sets: readonly CharSet[]): number[] {
  const marks = new Set<number>();
  for (const set of sets) {
    for (const [lo, hi] of rangesOf(set)) {
      marks.add(lo);
      marks.add(hi + 1);
    }
  }
  return [...marks].sort((a, b) => a - b);
}
