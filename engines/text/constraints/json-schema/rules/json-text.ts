// JSON text: grammar expressions for separators with limited white space, strings, the values of an enum, and any JSON
// value. Separators are written inline, not as rules; ebnf/expressions.ts gives the reason. No side effects.

import {
  asciiChars,
  type CharSet,
  charSet,
  charsOf,
  complement,
  difference,
  digitChars,
  intersection,
  rangesOf,
  union,
} from "../../../../../runtime/regex/char-set.ts";
import type { Automaton } from "../../../../../runtime/regex/states.ts";
import { spendOn } from "../../../../../runtime/regex/work.ts";
import {
  choice,
  type Expression,
  type Rules,
  repeat,
  rule,
  sequence,
  sequenceOf,
  set,
  text,
} from "../../ebnf/expressions.ts";
import type { Spelling } from "../../regex-rules.ts";

/**
 * Text between values: nothing, a space, or a line feed with indentation. The length is bounded, so that a model
 * cannot write white space forever.
 */
const gap: Expression = choice(
  text(""),
  text(" "),
  ...[0, 2, 4, 6, 8, 10, 12].map((width) => text(`\n${" ".repeat(width)}`)),
);
const afterColon: Expression = choice(text(""), text(" "));

export const openObject = sequence(text("{"), gap);
export const closeObject = sequence(gap, text("}"));
export const openArray = sequence(text("["), gap);
export const closeArray = sequence(gap, text("]"));
export const comma = sequence(text(","), gap);
export const colon = sequence(text(":"), afterColon);

export const mustEscape = union(charSet([[0, 0x1f]]), charsOf('"\\'));
export const hexDigit = set(
  union(
    digitChars,
    charSet([
      [0x41, 0x46],
      [0x61, 0x66],
    ]),
  ),
);

/**
 * Encoding of a JSON string after its opening quote, up to its closing quote. Each character has exactly one
 * encoding.
 */
export const stringSpelling: Spelling = {
  chars(chars: CharSet): readonly Expression[] {
    const escaped = intersection(chars, mustEscape);
    const plain = alone(difference(chars, mustEscape));
    return escaped.length === 0 ? plain : [...plain, sequence(text("\\"), escapes(escaped))];
  },
  end: text('"'),
};

/**
 * Returns the escapes of `chars` without the backslash. They form one expression, because each alternative costs the
 * engine a search of its vocabulary.
 */
function escapes(chars: CharSet): Expression {
  let letters = "";
  /** Last hexadecimal digits of the characters that are escaped as \u000x, and of those escaped as \u001x. */
  let [low, high] = ["", ""];
  for (const [lo, hi] of rangesOf(chars)) {
    for (let char = lo; char <= hi; char++) {
      const spelled = JSON.stringify(String.fromCharCode(char)).slice(2, -1);
      if (spelled.length === 1) letters += spelled;
      else if (char < 0x10) low += spelled.at(-1);
      else high += spelled.at(-1);
    }
  }
  const numbers = choice(sequence(text("0"), set(charsOf(low))), sequence(text("1"), set(charsOf(high))));
  return choice(set(charsOf(letters)), sequence(text("u00"), numbers));
}

/**
 * Returns the characters that need no escape. Characters beyond ASCII have several bytes, so they form a separate set.
 */
function alone(chars: CharSet): readonly Expression[] {
  return [intersection(chars, asciiChars), difference(chars, asciiChars)].filter((part) => part.length > 0).map(set);
}

/** Rules that a grammar uses several times, defined on first use. */
export class SharedRules {
  readonly #rules: Rules;
  readonly #made = new Set<string>();
  readonly #known = new Map<string, Expression>();
  /** Names of the rules that string automata and key automata share. */
  readonly common = new Map<string, string>();
  readonly #automata = new Map<string, string>();
  readonly #automatonKeys = new WeakMap<Automaton, string>();

  constructor(rules: Rules) {
    this.#rules = rules;
  }

  /** Returns the expression for any JSON string, with any valid escapes. */
  string(): Expression {
    return this.#shared("string", () => sequence(text('"'), this.stringRest()));
  }

  /** Returns the expression for the text of any string after its opening quote. */
  stringRest(): Expression {
    return this.#shared("string_rest", () => {
      const rest = rule("string_rest");
      const escaped = choice(set(charsOf('"\\/bfnrt')), sequence(text("u"), repeat(hexDigit, 4, 4)));
      const plain = alone(complement(mustEscape)).map((chars) => sequence(chars, rest));
      return choice(text('"'), ...plain, sequence(text("\\"), escaped, rest));
    });
  }

  integer(): Expression {
    return this.#shared("integer", () => integerDigits);
  }

  number(): Expression {
    return this.#shared("number", () => {
      const fraction = sequence(text("."), repeat(set(digitChars), 1, 15));
      const exponent = sequence(set(charsOf("eE")), repeat(set(charsOf("+-")), 0, 1), repeat(set(digitChars), 1, 2));
      return sequence(integerDigits, repeat(fraction, 0, 1), repeat(exponent, 0, 1));
    });
  }

  any(): Expression {
    return this.#shared("any", () =>
      choice(this.object(), this.array(), this.string(), this.number(), text("true"), text("false"), text("null")),
    );
  }

  object(): Expression {
    return this.#shared("object", () => {
      const member = sequence(this.string(), colon, rule("any"));
      const rest = this.#shared("object_rest", () => choice(sequence(comma, member, rule("object_rest")), closeObject));
      this.any();
      return sequence(openObject, choice(text("}"), sequence(member, rest)));
    });
  }

  array(): Expression {
    return this.#shared("array", () => {
      const rest = this.#shared("array_rest", () =>
        choice(sequence(comma, rule("any"), rule("array_rest")), closeArray),
      );
      this.any();
      return sequence(openArray, choice(text("]"), sequence(rule("any"), rest)));
    });
  }

  /** Returns a key that is the same for equal automata. */
  automatonKey(automaton: Automaton): string {
    const known = this.#automatonKeys.get(automaton);
    if (known !== undefined) return known;
    const text = JSON.stringify(automaton);
    spendOn(2 * text.length);
    const key = this.#automata.get(text) ?? `automaton ${this.#automata.size}`;
    this.#automata.set(text, key);
    this.#automatonKeys.set(automaton, key);
    return key;
  }

  /** Returns the same expression for the same key. Calls `make` only the first time. */
  once(key: string, make: () => Expression): Expression {
    const known = this.#known.get(key) ?? make();
    this.#known.set(key, known);
    return known;
  }

  #shared(name: string, make: () => Expression): Expression {
    if (!this.#made.has(name)) {
      this.#made.add(name);
      this.#rules.define(name, make());
    }
    return rule(name);
  }
}

// An integer has at most 15 digits, because a double represents every such integer exactly. The
// limit also prevents endless digits.
const integerDigits = sequence(
  repeat(text("-"), 0, 1),
  choice(text("0"), sequence(set(charSet([[0x31, 0x39]])), repeat(set(digitChars), 0, 14))),
);

/** Returns the text of one value, with object keys in their given order. */
export function valueText(value: unknown): Expression {
  if (typeof value !== "object" || value === null) return text(JSON.stringify(value));
  if (Array.isArray(value)) {
    if (value.length === 0) return text("[]");
    return sequenceOf([openArray, ...separated(value.map(valueText)), closeArray]);
  }
  const members = Object.entries(value).map(([key, inner]) => sequence(keyText(key), valueText(inner)));
  return members.length === 0 ? text("{}") : sequenceOf([openObject, ...separated(members), closeObject]);
}

export function keyText(key: string): Expression {
  return sequence(text(JSON.stringify(key)), colon);
}

function separated(parts: readonly Expression[]): Expression[] {
  return parts.flatMap((part, i) => (i === 0 ? [part] : [comma, part]));
}
