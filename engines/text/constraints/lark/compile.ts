// Lark compiler: translates Lark grammars into rules. There is no lexer. A terminal matches text directly, and ignored
// text may follow each terminal. Called by answer.ts. No side effects.

import { bothCases, charSet, charsOf } from "../../../../runtime/regex/char-set.ts";
import { parseRegex } from "../../../../runtime/regex/parse.ts";
import { RegexProblem } from "../../../../runtime/regex/syntax.ts";
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
  text,
} from "../ebnf/expressions.ts";
import { compileSchemaInto } from "../json-schema/rules/compile.ts";
import { regexExpression } from "../regex-rules.ts";
import { commonTerminals } from "./common.ts";
import { type LarkFile, type LarkNode, parseLark } from "./parse.ts";
import { larkError } from "./problem.ts";

/** Maximum length in characters of one stretch of ignored text, so that a model cannot emit white space forever. */
const maxIgnored = 40;

/**
 * Compiles the grammar and adds its rules to `rules`. Returns the expression of the start rule. `extensions`: accept
 * the extensions of llguidance.
 */
export function compileLarkInto(grammar: string, extensions: boolean, rules: Rules): Expression {
  return new LarkCompiler(parseLark(grammar, extensions), rules).compile();
}

/** Creates the error for a grammar that no string matches. */
export function noLarkText(): Error {
  return larkError("invalid_value", 1, "no text can match it, because its rules never end");
}

class LarkCompiler {
  readonly #file: LarkFile;
  readonly #rules: Rules;
  /** Optional ignored text between two terminals. */
  readonly #gap: Expression;
  /** Regular expressions and imported terminals, each compiled once. */
  readonly #made = new Map<string, Expression>();

  constructor(file: LarkFile, rules: Rules) {
    this.#file = file;
    this.#rules = rules;
    const ignored = file.ignored.map((node) => bounded(this.#expression(node, false)));
    this.#gap = ignored.length === 0 ? empty : repeat(choiceOf(ignored), 0, 1);
  }

  compile(): Expression {
    if (!this.#file.definitions.has("start")) throw larkError("invalid_value", 1, 'expected a rule named "start"');
    for (const [name, node] of this.#file.definitions)
      this.#rules.define(ruleName(name), this.#expression(node, isRule(name)));
    return sequence(this.#gap, rule(ruleName("start")));
  }

  /**
   * Compiles a node. `spaced` is true inside a rule, where ignored text may follow each terminal, and false inside a
   * terminal.
   */
  #expression(node: LarkNode, spaced: boolean): Expression {
    switch (node.kind) {
      case "sequence":
        return sequenceOf(node.parts.map((part) => this.#expression(part, spaced)));
      case "choice":
        return choiceOf(node.options.map((option) => this.#expression(option, spaced)));
      case "repeat":
        return repeat(this.#expression(node.of, spaced), node.min, node.max);
      case "name":
        return this.#name(node, spaced);
      case "string":
        return this.#terminal(node.ignoreCase ? anyCase(node.text) : text(node.text), spaced);
      case "range":
        return this.#terminal(charRange(node), spaced);
      case "regex":
        return this.#terminal(
          this.#once(`/${node.pattern}/${node.flags}`, () => regex(node)),
          spaced,
        );
      case "json":
        return this.#terminal(this.#json(node), spaced);
    }
  }

  #terminal(expression: Expression, spaced: boolean): Expression {
    return spaced && this.#gap !== empty ? sequence(expression, this.#gap) : expression;
  }

  /** Returns the same expression for all uses of a name. */
  #name(node: LarkNode & { kind: "name" }, spaced: boolean): Expression {
    return this.#once(`${node.name}${spaced ? " spaced" : ""}`, () => this.#named(node, spaced));
  }

  #named({ name, line }: LarkNode & { kind: "name" }, spaced: boolean): Expression {
    if (isRule(name)) {
      if (!spaced) throw larkError("invalid_value", line, `the rule ${name} cannot be part of a terminal`);
      if (this.#file.definitions.has(name)) return rule(ruleName(name));
      throw larkError("invalid_value", line, `there is no rule ${name}`);
    }
    if (this.#file.definitions.has(name)) return this.#terminal(rule(ruleName(name)), spaced);
    const imported = this.#file.imports.get(name);
    if (imported === undefined) throw larkError("invalid_value", line, `there is no terminal ${name}`);
    const pattern = commonTerminals.get(imported.name);
    if (pattern === undefined)
      throw larkError("unsupported", imported.line, `common.${imported.name} is not supported`);
    return this.#terminal(regexExpression(parseRegex(pattern)), spaced);
  }

  #once(key: string, make: () => Expression): Expression {
    const known = this.#made.get(key) ?? make();
    this.#made.set(key, known);
    return known;
  }

  #json({ schema, line }: LarkNode & { kind: "json" }): Expression {
    const { expression, unchecked } = compileSchemaInto(schema, this.#rules);
    if (unchecked.length === 0) return expression;
    throw larkError("unsupported", line, `${unchecked[0]} cannot be enforced inside %json`);
  }
}

function isRule(name: string): boolean {
  return /^_?[a-z]/.test(name);
}

/** Returns a prefixed name, because a rule and a terminal may differ only in case. */
function ruleName(name: string): string {
  return `${isRule(name) ? "rule" : "terminal"}_${name}`;
}

function regex({ pattern, flags, line }: LarkNode & { kind: "regex" }): Expression {
  const unknown = /[^isu]/.exec(flags);
  if (unknown !== null)
    throw larkError("unsupported", line, `the flag "${unknown[0]}" of a regular expression is not supported`);
  try {
    return regexExpression(parseRegex(pattern, { ignoreCase: flags.includes("i"), dotAll: flags.includes("s") }));
  } catch (thrown) {
    if (thrown instanceof RegexProblem)
      throw larkError(thrown.code, line, `in a regular expression: ${thrown.message}`);
    throw thrown;
  }
}

function anyCase(value: string): Expression {
  const sets = new Map<string, Expression>();
  for (const char of value) {
    if (!sets.has(char)) sets.set(char, set(bothCases(charsOf(char)) ?? charsOf(char)));
  }
  return sequenceOf([...value].map((char) => sets.get(char) as Expression));
}

function charRange({ from, to, line }: LarkNode & { kind: "range" }): Expression {
  const [low, high] = [from, to].map((end) => ([...end].length === 1 ? (end.codePointAt(0) as number) : -1)) as [
    number,
    number,
  ];
  if (low === -1 || high < low)
    throw larkError("invalid_value", line, `expected a range of two characters, got "${from}".."${to}"`);
  return set(charSet([[low, high]]));
}

/** Returns the expression with a maximum for every unlimited repetition. */
function bounded(expression: Expression): Expression {
  switch (expression.kind) {
    case "sequence":
      return sequenceOf(expression.parts.map(bounded));
    case "choice":
      return choiceOf(expression.options.map(bounded));
    case "repeat":
      return repeat(bounded(expression.of), expression.min, expression.max ?? Math.max(expression.min, maxIgnored));
    default:
      return expression;
  }
}
