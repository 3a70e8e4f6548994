// GBNF compiler: translates grammars in llama.cpp's notation (`root ::= "a" [0-9]+ other-rule`) into rules. A rule ends
// where the next one begins, so line ends have no meaning. Called by answer.ts. No side effects.
import { ServerError } from "../../../runtime/errors.ts";
import { anyChar } from "../../../runtime/regex/char-set.ts";
import { maxRepeat, parseRegex } from "../../../runtime/regex/parse.ts";
import { RegexProblem } from "../../../runtime/regex/syntax.ts";
import { spend, spendOn } from "../../../runtime/regex/work.ts";
import { choiceOf, type Expression, type Rules, repeat, rule, sequenceOf, set, text } from "./ebnf/expressions.ts";
import { unescaped } from "./escapes.ts";
import { regexExpression } from "./regex-rules.ts";

const maxDepth = 100;
const startRule = "root";

type TokenKind = "definition" | "name" | "string" | "class" | "count" | "symbol" | "end";

interface Token {
  readonly kind: TokenKind;
  readonly text: string;
  readonly line: number;
}

/**
 * Token kinds with their patterns, in the order in which they are tried. A `definition` is a rule name and the "::="
 * after it.
 */
const patterns: readonly (readonly [kind: TokenKind | "skip", pattern: RegExp])[] = [
  ["skip", /\s+|#[^\n]*/y],
  ["definition", /[A-Za-z0-9_][A-Za-z0-9_-]*\s*::=/y],
  ["name", /[A-Za-z0-9_][A-Za-z0-9_-]*/y],
  ["string", /"(?:[^"\\\n]|\\.)*"/y],
  ["class", /\[(?:[^\]\\\n]|\\.)*\]/y],
  ["count", /\{\s*\d*\s*,?\s*\d*\s*\}/y],
  ["symbol", /[|()*+?.]/y],
];

/**
 * Compiles the grammar and adds its rules to `rules`. Returns the expression of the start rule. Throws ServerError
 * `invalid_value` or `unsupported` with the line.
 */
export function compileGbnfInto(grammar: string, rules: Rules): Expression {
  return new GbnfCompiler(tokensOf(grammar), rules).compile();
}

/** Creates the error for a grammar that no string matches. */
export function noGbnfText(): Error {
  return gbnfError("invalid_value", 1, "no text can match it, because its rules never end");
}

function gbnfError(code: "invalid_value" | "unsupported", line: number, message: string): ServerError {
  return new ServerError(code, `GBNF grammar, line ${line}: ${message}`);
}

function tokensOf(grammar: string): readonly Token[] {
  const tokens: Token[] = [];
  let line = 1;
  for (let at = 0; at < grammar.length; ) {
    spend(1);
    const [kind, found] = tokenAt(grammar, at, line);
    if (kind !== "skip") tokens.push({ kind, text: found, line });
    spendOn(found.length);
    line += found.split("\n").length - 1;
    at += found.length;
  }
  tokens.push({ kind: "end", text: "", line });
  return tokens;
}

function tokenAt(grammar: string, at: number, line: number): readonly [TokenKind | "skip", string] {
  for (const [kind, pattern] of patterns) {
    pattern.lastIndex = at;
    if (pattern.test(grammar)) return [kind, grammar.slice(at, pattern.lastIndex)];
  }
  const first = grammar[at];
  if (first === "<" || first === "!")
    throw gbnfError("unsupported", line, `a reference to a token, which begins with "${first}", is not supported`);
  throw gbnfError(
    "invalid_value",
    line,
    `expected a part of a rule, got ${JSON.stringify(grammar.slice(at, at + 20))}`,
  );
}

class GbnfCompiler {
  readonly #tokens: readonly Token[];
  readonly #rules: Rules;
  /** Names of the compiled rules, keyed by their names in the grammar. */
  readonly #names = new Map<string, string>();
  #at = 0;
  #depth = 0;

  constructor(tokens: readonly Token[], rules: Rules) {
    this.#tokens = tokens;
    this.#rules = rules;
    for (const token of tokens) if (token.kind === "definition") this.#declare(token);
  }

  compile(): Expression {
    const start = this.#names.get(startRule);
    if (start === undefined) throw gbnfError("invalid_value", 1, `expected a rule named "${startRule}"`);
    while (this.#token.kind !== "end") this.#rule();
    return rule(start);
  }

  #declare(token: Token): void {
    const name = definedName(token);
    if (this.#names.has(name)) throw gbnfError("invalid_value", token.line, `${name} is defined twice`);
    this.#names.set(name, this.#rules.reserve("gbnf"));
  }

  #rule(): void {
    const token = this.#next();
    if (token.kind !== "definition") throw unexpected("the name of a rule and ::=", token);
    const compiledName = this.#names.get(definedName(token)) as string;
    this.#rules.define(compiledName, this.#choice());
    const { kind } = this.#token;
    if (kind !== "definition" && kind !== "end") throw unexpected("the next rule", this.#token);
  }

  #choice(): Expression {
    const options = [this.#sequence()];
    while (this.#takeSymbol("|")) options.push(this.#sequence());
    return choiceOf(options);
  }

  #sequence(): Expression {
    const parts: Expression[] = [];
    while (this.#beginsItem()) parts.push(this.#repeated(this.#item()));
    return sequenceOf(parts);
  }

  #beginsItem(): boolean {
    const { kind, text } = this.#token;
    return kind === "name" || kind === "string" || kind === "class" || (kind === "symbol" && "(.".includes(text));
  }

  #item(): Expression {
    spend(1);
    const token = this.#next();
    switch (token.kind) {
      case "name":
        return this.#reference(token);
      case "string":
        return text(unescaped(token.text.slice(1, -1), (sequence) => noCharacter(sequence, token)));
      case "class":
        return charClass(token);
      default:
        return token.text === "." ? set(anyChar) : this.#group(token);
    }
  }

  #reference({ text: name, line }: Token): Expression {
    const compiledName = this.#names.get(name);
    if (compiledName === undefined) throw gbnfError("invalid_value", line, `there is no rule ${name}`);
    return rule(compiledName);
  }

  #group({ line }: Token): Expression {
    if (++this.#depth > maxDepth) throw gbnfError("invalid_value", line, `groups are nested deeper than ${maxDepth}`);
    const of = this.#choice();
    this.#depth--;
    if (!this.#takeSymbol(")")) throw unexpected('")"', this.#token);
    return of;
  }

  #repeated(of: Expression): Expression {
    if (this.#takeSymbol("?")) return repeat(of, 0, 1);
    if (this.#takeSymbol("*")) return repeat(of, 0, null);
    if (this.#takeSymbol("+")) return repeat(of, 1, null);
    if (this.#token.kind !== "count") return of;
    const [min, max] = bounds(this.#next());
    return repeat(of, min, max);
  }

  get #token(): Token {
    return this.#tokens[this.#at] as Token;
  }

  #next(): Token {
    const token = this.#token;
    if (token.kind !== "end") this.#at++;
    return token;
  }

  #takeSymbol(symbol: string): boolean {
    if (this.#token.kind !== "symbol" || this.#token.text !== symbol) return false;
    this.#at++;
    return true;
  }
}

function definedName({ text }: Token): string {
  return text.slice(0, -"::=".length).trimEnd();
}

/** Parses {n}, {n,}, {,m} or {n,m}. */
function bounds(token: Token): readonly [min: number, max: number | null] {
  const [low = "", high] = token.text
    .slice(1, -1)
    .split(",")
    .map((bound) => bound.trim());
  if (low === "" && !high) throw unexpected("a number of repetitions", token);
  const min = Number(low);
  const max = high === undefined ? min : high === "" ? null : Number(high);
  if (Math.max(min, max ?? 0) > maxRepeat) throw unexpected(`bounds of repetitions of at most ${maxRepeat}`, token);
  if (max !== null && max < min) throw unexpected("bounds of repetitions in order", token);
  return [min, max];
}

/** Compiles a character class. Its syntax is that of a class in a regular expression, plus the escape \UXXXXXXXX. */
function charClass(token: Token): Expression {
  const pattern = token.text.replace(/\\(?:U([0-9a-fA-F]{8})|.)/gsu, (sequence, code: string | undefined) =>
    code === undefined ? sequence : `\\u{${code.replace(/^0+(?=.)/, "")}}`,
  );
  try {
    return regexExpression(parseRegex(pattern));
  } catch (thrown) {
    if (thrown instanceof RegexProblem) throw gbnfError(thrown.code, token.line, `in ${token.text}: ${thrown.message}`);
    throw thrown;
  }
}

function noCharacter(sequence: string, { line }: Token): Error {
  return gbnfError("invalid_value", line, `there is no character ${sequence}`);
}

function unexpected(wanted: string, { kind, text, line }: Token): Error {
  const got = kind === "end" ? "the end" : JSON.stringify(text.slice(0, 40));
  return gbnfError("invalid_value", line, `expected ${wanted}, got ${got}`);
}
