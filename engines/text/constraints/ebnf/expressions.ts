// Grammar rules: named expressions. The translators build them; writer.ts writes them for the grammar engine. No side
// effects.
//
// Speed: if a token ends within one rule, the engine tests the token only once for each state of the rule. So
// repeated text should be written as one rule that refers to itself at its end (s ::= "\"" | [^"] s). A small rule
// that is repeated (c* with c ::= [^"]) is slow, because the engine tests every token again at each step.
import type { CharSet } from "../../../../runtime/regex/char-set.ts";
import { spendOn } from "../../../../runtime/regex/work.ts";

export type Expression =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "set"; readonly set: CharSet }
  /**
   * One byte of a set. The set is given as sorted, disjoint ranges [lo, hi, lo, hi, …] with inclusive bounds.
   * byte-sets.ts converts character sets to these byte sets.
   */
  | { readonly kind: "bytes"; readonly ranges: readonly number[] }
  | { readonly kind: "rule"; readonly name: string }
  | { readonly kind: "sequence"; readonly parts: readonly Expression[] }
  | { readonly kind: "choice"; readonly options: readonly Expression[] }
  | { readonly kind: "repeat"; readonly of: Expression; readonly min: number; readonly max: number | null }
  /** Any bytes; created by `through`, `freeText` and `anything`. Allowed only as the whole body of a rule. */
  | { readonly kind: "any"; readonly mark: string | null; readonly next: string | null };

export const empty: Expression = { kind: "sequence", parts: [] };
export const never: Expression = { kind: "choice", options: [] };

export function text(value: string): Expression {
  return value === "" ? empty : { kind: "text", text: value };
}

export function set(chars: CharSet): Expression {
  const [lo, hi] = chars;
  if (lo === undefined || hi === undefined) return never;
  return chars.length === 2 && lo === hi ? text(String.fromCodePoint(lo)) : { kind: "set", set: chars };
}

export function rule(name: string): Expression {
  return { kind: "rule", name };
}

export function sequence(...parts: readonly Expression[]): Expression {
  return sequenceOf(parts);
}

/** Like `sequence`, but takes an array, because the number of arguments of a JavaScript call is limited. */
export function sequenceOf(parts: readonly Expression[]): Expression {
  const joined: Expression[] = [];
  for (const part of parts) {
    if (isNever(part)) return never;
    if (part.kind !== "sequence") append(joined, part);
    else for (const inner of part.parts) append(joined, inner);
  }
  spendOn(parts.length + joined.length);
  return joined.length === 1 ? (joined[0] as Expression) : { kind: "sequence", parts: joined };
}

function append(parts: Expression[], part: Expression): void {
  const last = parts[parts.length - 1];
  if (part.kind === "text" && last?.kind === "text") parts[parts.length - 1] = text(last.text + part.text);
  else parts.push(part);
}

export function choice(...options: readonly Expression[]): Expression {
  return choiceOf(options);
}

/** Like `choice`, but takes an array of any length. */
export function choiceOf(options: readonly Expression[]): Expression {
  const flat = options.flatMap((option) => (option.kind === "choice" ? option.options : [option]));
  spendOn(options.length + flat.length);
  return flat.length === 1 ? (flat[0] as Expression) : { kind: "choice", options: flat };
}

export function repeat(of: Expression, min: number, max: number | null): Expression {
  if (max === 0 || (min === 0 && isNever(of))) return empty;
  if (isNever(of) || (min === 1 && max === 1)) return of;
  return { kind: "repeat", of, min, max };
}

/** Matches any text up to and including the first occurrence of `mark`. */
export function through(mark: string): Expression {
  return { kind: "any", mark, next: null };
}

/** Matches any text. After the first occurrence of `mark`, the rule `next` must match all remaining text. */
export function freeText(mark: string, next: string): Expression {
  return { kind: "any", mark, next };
}

export const anything: Expression = { kind: "any", mark: null, next: null };

export function isNever(expression: Expression): boolean {
  return expression.kind === "choice" && expression.options.length === 0;
}

/** Rules of a grammar by name. The start rule is `root`. */
export class Rules {
  readonly byName = new Map<string, Expression>();
  /**
   * Lookahead by rule name: an expression that the engine assumes to match the text after the rule. See
   * json-schema/rules/counted-strings.ts.
   */
  readonly lookaheads = new Map<string, Expression>();
  readonly #limit: number;
  #named = 0;

  readonly #tooMany: () => Error;

  /** `limit` is the maximum number of rules; `tooMany` creates the error for exceeding it. */
  constructor(limit: number, tooMany: () => Error) {
    this.#limit = limit;
    this.#tooMany = tooMany;
  }

  /** Returns a unique name for a rule that is defined later. */
  reserve(prefix: string): string {
    if (this.#named++ >= this.#limit) throw this.#tooMany();
    return `${prefix}_${this.#named}`;
  }

  define(name: string, expression: Expression): Expression {
    this.byName.set(name, expression);
    return rule(name);
  }

  add(prefix: string, expression: Expression): Expression {
    return this.define(this.reserve(prefix), expression);
  }
}
