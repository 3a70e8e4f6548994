// Owns the two ways a regular expression becomes part of a grammar: as it is written, or by the rules of its automaton. Pure.
import { choice, type Expression, empty, type Rules, repeat, rule, sequence, set } from "../ebnf.ts";
import { type Automaton, stateOf } from "./automaton.ts";
import type { CharSet } from "./char-set.ts";
import { type Regex, type RegexNode, RegexProblem } from "./syntax.ts";

/** A regular expression that must match all of a text, as it is written. Anchors may stand at its ends alone. */
export function regexExpression({ node, ahead }: Regex): Expression {
  if (ahead.length > 0) throw new RegexProblem("unsupported", "lookaheads are not supported here");
  return expressionOf(withoutAnchors(node));
}

function expressionOf(node: RegexNode): Expression {
  switch (node.kind) {
    case "set":
      return set(node.set);
    case "sequence":
      return sequence(...node.parts.map(expressionOf));
    case "choice":
      return choice(...node.options.map(expressionOf));
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

/** How the characters of a set, and what stands behind the last one, are written in the text that is generated. */
export interface Spelling {
  /** As alternatives. */
  chars(set: CharSet): readonly Expression[];
  readonly end: Expression;
}

export const plainSpelling: Spelling = { chars: (chars) => [set(chars)], end: empty };

/**
 * The rules of an automaton. A state that is entered from one place is written there; the others are rules that call each
 * other at their ends.
 */
export function automatonExpression(
  automaton: Automaton,
  rules: Rules,
  prefix: string,
  spelling: Spelling,
): Expression {
  const entries = automaton.map((_, at): number => (at === 0 ? 1 : 0));
  for (const state of automaton) for (const { to } of state.edges) entries[to] = (entries[to] as number) + 1;
  const names = new Map<number, string>();
  const todo: number[] = [];

  function ruleOf(at: number): Expression {
    const known = names.get(at);
    if (known !== undefined) return rule(known);
    const name = rules.reserve(prefix);
    names.set(at, name);
    todo.push(at);
    return rule(name);
  }

  function body(at: number, depth: number): Expression {
    const state = stateOf(automaton, at);
    const options = state.edges.flatMap(({ set: chars, to }) => {
      const spelled = spelling.chars(chars);
      // The engine is four times as quick with "a s | b s" as with "(a | b) s".
      const rest = spelled.length > 1 ? ruleOf(to) : target(to, depth + 1);
      return spelled.map((option) => sequence(option, rest));
    });
    return choice(...(state.accepts ? [spelling.end] : []), ...options);
  }

  function target(to: number, depth: number): Expression {
    const isShared = (entries[to] as number) > 1 && stateOf(automaton, to).edges.length > 0;
    return isShared || depth > maxInlineDepth ? ruleOf(to) : body(to, depth);
  }

  const start = ruleOf(0);
  for (let at = todo.pop(); at !== undefined; at = todo.pop()) rules.define(names.get(at) as string, body(at, 0));
  return start;
}

/** Nested deeper than this a state becomes a rule too. */
const maxInlineDepth = 24;
