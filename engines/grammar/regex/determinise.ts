// Owns the way from a regular expression to an automaton: a nondeterministic one first, then its sets of states. Bounded:
// what grows too large is refused. Pure.

import { spend } from "../work.ts";
import { type Automaton, both, boundaries, explore, least, maxStates, not, tooComplex } from "./automaton.ts";
import { anyChar, type CharSet, hasChar } from "./char-set.ts";
import type { Regex, RegexNode } from "./syntax.ts";

const maxNodes = 20_000;

/** How a pattern applies: somewhere in the text, as in a JSON schema, or to all of it. */
export type Anchoring = "anywhere" | "whole";

/** The texts a regular expression matches. */
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
    ({ states, isStart }) => `${isStart ? "^" : ""}${states.join()}`,
    ({ states, isStart }) => {
      spend(states.length);
      const edges = states.flatMap((state) => nfa.edges[state] as readonly NfaEdge[]);
      const marks = boundaries(edges.map((edge) => edge.set));
      spend(marks.length * edges.length);
      return {
        accepts: nfa.closure(states, isStart ? "start+end" : "end").includes(end),
        edges: split(nfa, edges, marks),
      };
    },
    maxStates,
  );
  return least(automaton);
}

interface StateSet {
  readonly states: readonly number[];
  /** Nothing has been read: `^` holds. */
  readonly isStart: boolean;
}

interface NfaEdge {
  readonly set: CharSet;
  readonly to: number;
}

function* split(
  nfa: Nfa,
  edges: readonly NfaEdge[],
  marks: readonly number[],
): Iterable<{ set: CharSet; to: StateSet }> {
  for (let i = 0; i + 1 < marks.length; i++) {
    const lo = marks[i] as number;
    const targets = edges.filter((edge) => hasChar(edge.set, lo)).map((edge) => edge.to);
    if (targets.length === 0) continue;
    yield { set: [lo, (marks[i + 1] as number) - 1], to: { states: nfa.closure(targets, "none"), isStart: false } };
  }
}

/** What holds of the place between two characters. */
type Place = "none" | "start" | "end" | "start+end";

class Nfa {
  readonly edges: NfaEdge[][] = [];
  readonly #jumps: { readonly to: number; readonly only: "start" | "end" | null }[][] = [];

  state(): number {
    if (this.edges.length >= maxNodes) throw tooComplex();
    this.#jumps.push([]);
    return this.edges.push([]) - 1;
  }

  /** Appends an expression behind a state; returns the state behind it. */
  add(node: RegexNode, from: number): number {
    switch (node.kind) {
      case "set": {
        const to = this.state();
        if (node.set.length > 0) this.edges[from]?.push({ set: node.set, to });
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

  /** All states reached from these without reading anything, in order. */
  closure(states: readonly number[], place: Place): number[] {
    const reached = new Set(states);
    for (const state of reached) {
      for (const { to, only } of this.#jumps[state] ?? []) {
        if (only === null || place.includes(only)) reached.add(to);
      }
    }
    spend(reached.size);
    return [...reached].sort((a, b) => a - b);
  }
}
