// GBNF writer: writes rules in llama.cpp's notation, for models on other servers. Unlike the EBNF of the grammar
// engine, GBNF has sets of characters instead of sets of bytes, and no expression for free text. No side effects.
import { rangesOf } from "../../../../runtime/regex/char-set.ts";
import { spend, spendOn } from "../../../../runtime/regex/work.ts";
import { Endings, pruned } from "./endings.ts";
import { type Expression, isNever, type Rules } from "./expressions.ts";

/** Writes the rules that `root` needs as a grammar. Returns null if no string matches `root`. */
export function gbnfText(rules: Rules, root: string, endings = new Endings(rules)): string | null {
  const live = pruned(rules, root, endings);
  if (live === null) return null;
  const lines: string[] = [];
  for (const [name, expression] of live) {
    if (expression.kind === "any") lines.push(...anyRules(ruleName(name), expression));
    else lines.push(`${ruleName(name)} ::= ${body(expression)}`);
  }
  return lines.join("\n");
}

/**
 * Returns the GBNF name of a rule, with "--" for "_". GBNF names have only letters, digits and dashes. No rule name
 * contains two dashes in a row, so the GBNF names are unique.
 */
function ruleName(name: string): string {
  return name.replaceAll("_", "--");
}

function body(expression: Expression): string {
  return expression.kind === "choice" ? expression.options.map(part).join(" | ") : part(expression);
}

function part(expression: Expression): string {
  spend(0.5);
  switch (expression.kind) {
    case "text":
      return quoted(expression.text);
    case "set":
      return `[${[...rangesOf(expression.set)].map(range).join("")}]`;
    case "rule":
      return ruleName(expression.name);
    case "sequence":
      return expression.parts.length === 0 ? '""' : expression.parts.map(part).join(" ");
    case "choice":
      return isNever(expression) ? '""' : `(${body(expression)})`;
    case "repeat":
      return `(${body(expression.of)})${quantifier(expression.min, expression.max)}`;
    case "bytes":
    case "any":
      throw new Error(`"${expression.kind}" is no part of a rule in GBNF`);
  }
}

/**
 * Writes free text as the rules of an automaton. The state of the automaton is the length of the longest prefix of
 * `mark` that the text so far ends with (the failure function of Knuth, Morris and Pratt).
 */
function anyRules(name: string, { mark, next }: Extract<Expression, { kind: "any" }>): readonly string[] {
  if (mark === null) return [`${name} ::= [^\\u0000]*`];
  const chars = [...mark];
  const distinct = [...new Set(chars)];
  spend(chars.length * distinct.length);
  const state = (matched: number) => (matched === 0 ? name : `${name}--at-${matched}`);
  const after = next === null ? "" : ` ${ruleName(next)}`;
  return chars.map((_, matched) => {
    const options = distinct.map((char) => {
      const reached = overlap(chars, [...chars.slice(0, matched), char]);
      return `${quoted(char)}${reached === chars.length ? after : ` ${state(reached)}`}`;
    });
    const others = `[^${distinct.map(setChar).join("")}] ${state(0)}`;
    // Text that need not contain `mark` may end after any character.
    return `${state(matched)} ::= ${[...options, others, ...(next === null ? [] : ['""'])].join(" | ")}`;
  });
}

/** Returns the length of the longest prefix of `mark` that `text` ends with. */
function overlap(mark: readonly string[], text: readonly string[]): number {
  for (let length = Math.min(mark.length, text.length); length > 0; length--) {
    if (mark.slice(0, length).every((char, i) => char === text[text.length - length + i])) return length;
  }
  return 0;
}

function range([lo, hi]: readonly [number, number]): string {
  const [first, last] = [setChar(String.fromCodePoint(lo)), setChar(String.fromCodePoint(hi))];
  return lo === hi ? first : `${first}-${last}`;
}

function setChar(char: string): string {
  return /[A-Za-z0-9]/.test(char) ? char : escaped(char);
}

function escaped(char: string): string {
  const code = char.codePointAt(0) as number;
  const hex = code.toString(16);
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}

function quoted(text: string): string {
  spendOn(text.length);
  return `"${text.replace(/[^ !#-[\]-~]/gu, (char) => (char === '"' || char === "\\" ? `\\${char}` : escaped(char)))}"`;
}

function quantifier(min: number, max: number | null): string {
  if (max === null) return min === 0 ? "*" : min === 1 ? "+" : `{${min},}`;
  if (min === 0 && max === 1) return "?";
  return min === max ? `{${min}}` : `{${min},${max}}`;
}
