// Regex rules: convert a regular expression to an expression of a grammar, either from its syntax tree or from its
// automaton. No side effects.

import type { CharSet } from "../../../runtime/regex/char-set.ts";
import { type Automaton, type Edge, isAnyText, stateOf } from "../../../runtime/regex/states.ts";
import { type Regex, type RegexNode, RegexProblem } from "../../../runtime/regex/syntax.ts";
import { anyTextPlace, type WidePlace, wideRules } from "../../../runtime/regex/wide-edges.ts";
import { spend } from "../../../runtime/regex/work.ts";
import {
  choiceOf,
  type Expression,
  empty,
  type Rules,
  repeat,
  rule,
  sequence,
  sequenceOf,
  set,
} from "./ebnf/expressions.ts";

/**
 * Converts the syntax tree of a regular expression that must match a whole string. Anchors are allowed only at the
 * start and the end of the pattern.
 */
export function regexExpression({ node, ahead }: Regex): Expression {
  if (ahead.length > 0) throw new RegexProblem("unsupported", "lookaheads are not supported here");
  return expressionOf(withoutAnchors(node));
}

function expressionOf(node: RegexNode): Expression {
  switch (node.kind) {
    case "set":
      return set(node.set);
    case "sequence":
      return sequenceOf(node.parts.map(expressionOf));
    case "choice":
      return choiceOf(node.options.map(expressionOf));
    case "repeat":
      return repeat(expressionOf(node.of), node.min, node.max);
    default:
      throw new RegexProblem("unsupported", `"${node.kind === "start" ? "^" : "$"}" is not supported inside a pattern`);
  }
}

function withoutAnchors(node: RegexNode): RegexNode {
  if (node.kind === "start" || node.kind === "end") return { kind: "sequence", parts: [] };
  if (node.kind === "choice") return { kind: "choice", options: node.options.map(withoutAnchors) };
  if (node.kind !== "sequence") return node;
  const parts = [...node.parts];
  if (parts[0]?.kind === "start") parts.shift();
  if (parts.at(-1)?.kind === "end") parts.pop();
  return { kind: "sequence", parts };
}

/**
 * Encoding of characters in the output, for example with the escapes of JSON. `end`: expression for the text after
 * the last character.
 */
export interface Spelling {
  /** Returns one expression for each way to represent a character of `set`. */
  chars(set: CharSet): readonly Expression[];
  readonly end: Expression;
}

export const plainSpelling: Spelling = { chars: (chars) => [set(chars)], end: empty };

/**
 * Converts an automaton to rules. A state with a single incoming edge is written inline. Each other state is a rule,
 * which calls other rules at its end. `common` contains the names of the rules that the grammar's automata share.
 */
export function automatonExpression(
  automaton: Automaton,
  rules: Rules,
  prefix: string,
  spelling: Spelling,
  common: Map<string, string> = new Map(),
): Expression {
  return new AutomatonRules(automaton, rules, prefix, spelling, common).start();
}

class AutomatonRules {
  readonly #automaton: Automaton;
  readonly #rules: Rules;
  readonly #prefix: string;
  readonly #spelling: Spelling;
  /** Number of edges that lead to each state. */
  readonly #entries: Int32Array;
  readonly #wide: ReadonlyMap<Edge, WidePlace>;
  /** Rule names by the keys of wide places (positions in the grammar where almost any character may come). */
  readonly #common: Map<string, string>;
  readonly #own = new Map<string, string>();
  readonly #names = new Map<number, string>();
  readonly #todo: number[] = [];

  constructor(automaton: Automaton, rules: Rules, prefix: string, spelling: Spelling, common: Map<string, string>) {
    this.#automaton = automaton;
    this.#rules = rules;
    this.#prefix = prefix;
    this.#spelling = spelling;
    this.#common = common;
    this.#wide = wideRules(automaton);
    this.#entries = new Int32Array(automaton.length);
    this.#entries[0] = 1;
    for (const { edges } of automaton) {
      for (const { to } of edges) this.#entries[to] = (this.#entries[to] as number) + 1;
    }
  }

  start(): Expression {
    const start = this.#rule(0);
    for (let at = this.#todo.pop(); at !== undefined; at = this.#todo.pop()) {
      this.#rules.define(this.#names.get(at) as string, this.#body(at, 0));
    }
    return start;
  }

  #rule(at: number): Expression {
    const isCommon = isAnyText(this.#automaton, at);
    const known = isCommon ? this.#common.get(anyTextPlace.key) : this.#names.get(at);
    if (known !== undefined) return rule(known);
    const name = this.#rules.reserve(this.#prefix);
    if (isCommon) this.#common.set(anyTextPlace.key, name);
    this.#names.set(at, name);
    this.#todo.push(at);
    return rule(name);
  }

  #body(at: number, depth: number): Expression {
    const { accepts, edges } = stateOf(this.#automaton, at);
    spend(1 + edges.length);
    const options = edges.flatMap((edge) => this.#edge(edge, depth));
    return choiceOf(accepts ? [this.#spelling.end, ...options] : options);
  }

  #edge(edge: Edge, depth: number): readonly Expression[] {
    const place = this.#wide.get(edge);
    if (place === undefined) return this.#spelled(edge, depth);
    const names = place.isCommon ? this.#common : this.#own;
    const known = names.get(place.key);
    if (known !== undefined) return [rule(known)];
    const name = this.#rules.reserve(this.#prefix);
    names.set(place.key, name);
    return [this.#rules.define(name, choiceOf(this.#spelled(edge, 0)))];
  }

  #spelled({ set: chars, to }: Edge, depth: number): readonly Expression[] {
    const spelled = this.#spelling.chars(chars);
    // The grammar engine compiles "a s | b s" four times as fast as "(a | b) s".
    const rest = spelled.length > 1 ? this.#rule(to) : this.#target(to, depth + 1);
    return spelled.map((option) => sequence(option, rest));
  }

  #target(to: number, depth: number): Expression {
    const isShared = (this.#entries[to] as number) > 1 && stateOf(this.#automaton, to).edges.length > 0;
    return isShared || depth > maxInlineDepth ? this.#rule(to) : this.#body(to, depth);
  }
}

/** Maximum nesting depth of an inline state. A state at a greater depth becomes a rule. */
const maxInlineDepth = 24;
