// Counted strings: rules for the text after the opening quote of a string with a length bound. There is one rule for
// each number of remaining characters. Used by strings.ts, with one instance per schema. No side effects.
//
// The grammar engine searches its whole vocabulary (about 10 ms) for each position where almost any character may come.
// So all counts share one rule for such a position, `char`. But the rule `char` does not tell the engine which tokens
// of several characters fit, so the engine would test these tokens one by one at each step.
//
// The rule `far` avoids these tests. It is an alternative to `char`, used while the rest of the string may be longer
// than a token. The lookahead of `far` states that more characters follow. The engine trusts the lookahead of a rule
// that is used once, so the engine accepts the tokens in `far` without tests. If few characters remain, each count has
// its own rule. This is cheap, because few tokens are that short.
//
// Quirks of the grammar engine:
// - It inlines a rule that calls no other rule at the first use of the rule, but `far` must stay a rule.
// - It does not trust a lookahead with a set that contains both ASCII and other characters.

import { asciiChars, charsOf, complement, difference, intersection } from "../../../../../runtime/regex/char-set.ts";
import { choice, type Expression, type Rules, rule, sequence, set, text } from "../../ebnf/expressions.ts";
import { hexDigit, mustEscape } from "./json-text.ts";

/** One more than the maximum length, in characters, of the tokens that the engine accepts without tests. */
const farChars = 16;
const nearChars = 6;
/** Maximum number of character counts with a rule in a grammar. The engine takes about 100 ms for 2000 of them. */
const maxCounts = 2000;

const plainChars = complement(mustEscape);
const ascii = set(intersection(plainChars, asciiChars));

/** Number of characters that must still follow: at least `min`, at most `max` (null: unlimited). */
interface Left {
  readonly min: number;
  readonly max: number | null;
}

export class CountedStrings {
  readonly #rules: Rules;
  /** Returns the expression for the text after the opening quote of a string without a length bound. */
  readonly #anyRest: () => Expression;
  readonly #names = new Map<string, string>();
  #chars: { readonly other: Expression; readonly char: Expression; readonly far: Expression } | null = null;

  constructor(rules: Rules, anyRest: () => Expression) {
    this.#rules = rules;
    this.#anyRest = anyRest;
  }

  /**
   * Returns the expression for a string of `min` to `max` characters, after its opening quote. Returns null if too
   * many rules would be needed.
   */
  rest(min: number, max: number | null): Expression | null {
    if (this.#names.size + (max ?? min) > maxCounts) return null;
    const todo: Left[] = [];
    const whole = this.#after({ min, max }, 0, todo);
    for (let left = todo.pop(); left !== undefined; left = todo.pop()) {
      this.#rules.define(this.#names.get(keyOf(left)) as string, this.#body(left, todo));
    }
    return whole;
  }

  /** Returns the expression for the text that follows `count` more characters. */
  #after({ min, max }: Left, count: number, todo: Left[]): Expression {
    const left = { min: Math.max(0, min - count), max: max === null ? null : max - count };
    if (left.max === 0) return text('"');
    if (left.min === 0 && left.max === null) return this.#anyRest();
    const key = keyOf(left);
    let name = this.#names.get(key);
    if (name === undefined) {
      name = this.#rules.reserve("count");
      this.#names.set(key, name);
      todo.push(left);
    }
    return rule(name);
  }

  #body(left: Left, todo: Left[]): Expression {
    this.#chars ??= this.#makeChars();
    const { other, char, far } = this.#chars;
    const most = left.max ?? Number.POSITIVE_INFINITY;
    const next = this.#after(left, 1, todo);
    const end = left.min === 0 ? [text('"')] : [];
    if (most <= nearChars) return choice(...end, sequence(ascii, next), sequence(other, next));
    if (most < farChars) return choice(...end, sequence(char, next));
    // Both alternatives match the same texts. With `far`, the engine need not test tokens with several characters.
    return choice(...end, sequence(char, next), sequence(far, this.#after(left, 2, todo)));
  }

  #makeChars(): { other: Expression; char: Expression; far: Expression } {
    const escaped = this.#rules.add("escaped", escapes);
    const beyondAscii = set(difference(plainChars, asciiChars));
    const other = this.#rules.add("other", choice(beyondAscii, sequence(text("\\"), escaped)));
    const char = this.#rules.add("char", choice(ascii, other));
    const name = this.#rules.reserve("looking");
    const looking = this.#rules.define(name, choice(ascii, other));
    this.#rules.lookaheads.set(name, sequence(...Array.from({ length: farChars - 1 }, () => char)));
    return { other, char, far: this.#rules.add("far", sequence(looking, char)) };
  }
}

/** The part of an escape after its backslash. Only characters that must be escaped are included. */
const escapes = choice(set(charsOf('"\\bfnrt')), sequence(text("u00"), set(charsOf("01")), hexDigit));

function keyOf({ min, max }: Left): string {
  return `${min}:${max ?? ""}`;
}
