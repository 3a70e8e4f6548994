// Owns strings whose characters are counted: what follows the opening quote, one rule for each count that is left. For
// strings.ts, one for each schema. Pure.
//
// The grammar engine looks its whole vocabulary up, some 10 ms, for each place where almost any character may come. So all
// counts share one place, that of `char`. But that says nothing of tokens of several characters, which would be tried one by
// one at each step. `far` stands beside it for as long as more characters are left than tokens have: the engine trusts the
// lookahead of a rule that is used once, and finds all of them there at no cost. With few characters left, a place for each
// count is cheap, as few tokens are that short.
// Traps: the engine copies a rule that calls no other one to where it stands first, and `far` must stay where it is; and it
// trusts no lookahead where the characters beyond ASCII stand beside the others.

import { asciiChars, charsOf, complement, difference, intersection } from "../../../../../runtime/regex/char-set.ts";
import { choice, type Expression, type Rules, rule, sequence, set, text } from "../../ebnf.ts";
import { hexDigit, mustEscape } from "./json-text.ts";

/** Most characters of a token that need not be tried, and one more. */
const farChars = 16;
const nearChars = 6;
/** Counts that a grammar may have in all: 2000 take the engine some 100 ms. */
const maxCounts = 2000;

const plainChars = complement(mustEscape);
const ascii = set(intersection(plainChars, asciiChars));

/** What may still come: characters that must, and that may (null: any number). */
interface Left {
  readonly min: number;
  readonly max: number | null;
}

export class CountedStrings {
  readonly #rules: Rules;
  /** What follows the opening quote of any string. */
  readonly #anyRest: () => Expression;
  readonly #names = new Map<string, string>();
  #chars: { readonly other: Expression; readonly char: Expression; readonly far: Expression } | null = null;

  constructor(rules: Rules, anyRest: () => Expression) {
    this.#rules = rules;
    this.#anyRest = anyRest;
  }

  /** The rest of a string of so many characters, behind its opening quote; null where that takes too many rules. */
  rest(min: number, max: number | null): Expression | null {
    if (this.#names.size + (max ?? min) > maxCounts) return null;
    const todo: Left[] = [];
    const whole = this.#after({ min, max }, 0, todo);
    for (let left = todo.pop(); left !== undefined; left = todo.pop()) {
      this.#rules.define(this.#names.get(keyOf(left)) as string, this.#body(left, todo));
    }
    return whole;
  }

  /** What is left when `count` more characters have come. */
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
    // Twice the same texts, told apart by what the engine knows of them.
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

/** Behind a backslash: the characters that must be escaped, and no others. */
const escapes = choice(set(charsOf('"\\bfnrt')), sequence(text("u00"), set(charsOf("01")), hexDigit));

function keyOf({ min, max }: Left): string {
  return `${min}:${max ?? ""}`;
}
