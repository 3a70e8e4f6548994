// Byte sets: rewrites the character sets of expressions as sequences of UTF-8 bytes, because the grammar engine reads a
// range of non-ASCII characters as a range of bytes. No side effects.
import {
  asciiChars,
  type CharSet,
  difference,
  intersection,
  utf8Sequences,
} from "../../../../runtime/regex/char-set.ts";
import { spend } from "../../../../runtime/regex/work.ts";
import { choiceOf, type Expression, repeat, rule, sequenceOf } from "./expressions.ts";

/**
 * Maximum number of UTF-8 byte sequences in a character set that is written inline. A larger set becomes a
 * rule and is written only once.
 */
const maxInlineSequences = 2;

export class ByteSets {
  /** Rules for large sets, by name. */
  readonly rules = new Map<string, Expression>();
  readonly #known = new Map<Expression, Expression>();
  readonly #sets = new Map<string, Expression>();

  /** Returns an equivalent expression without character sets. The result may refer to new rules. */
  without(expression: Expression): Expression {
    switch (expression.kind) {
      case "set":
        return this.#set(expression.set);
      case "sequence":
      case "choice":
      case "repeat":
        return this.#composite(expression);
      default:
        return expression;
    }
  }

  #composite(expression: Expression & { kind: "sequence" | "choice" | "repeat" }): Expression {
    const known = this.#known.get(expression);
    if (known !== undefined) return known;
    spend(1);
    const made =
      expression.kind === "repeat"
        ? repeat(this.without(expression.of), expression.min, expression.max)
        : expression.kind === "choice"
          ? choiceOf(expression.options.map((option) => this.without(option)))
          : sequenceOf(expression.parts.map((part) => this.without(part)));
    this.#known.set(expression, made);
    return made;
  }

  #set(set: CharSet): Expression {
    spend(set.length / 4);
    const key = set.join();
    const known = this.#sets.get(key);
    if (known !== undefined) return known;
    const narrow = intersection(set, asciiChars);
    const wide = difference(set, asciiChars);
    const options: Expression[] = narrow.length === 0 ? [] : [{ kind: "bytes", ranges: narrow }];
    if (wide.length > 0) options.push(this.#wideSet(wide));
    const made = choiceOf(options);
    this.#sets.set(key, made);
    return made;
  }

  /** Returns an expression for a set of characters beyond ASCII. */
  #wideSet(set: CharSet): Expression {
    const key = `wide ${set.join()}`;
    const known = this.#sets.get(key);
    if (known !== undefined) return known;
    const sequences = utf8Sequences(set).map((ranges) =>
      sequenceOf(ranges.map((range): Expression => ({ kind: "bytes", ranges: range }))),
    );
    let made = choiceOf(sequences);
    if (sequences.length > maxInlineSequences) {
      const name = `utf8-${this.rules.size}`;
      this.rules.set(name, made);
      made = rule(name);
    }
    this.#sets.set(key, made);
    return made;
  }
}
