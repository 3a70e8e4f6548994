// EBNF text: writes rules in the grammar engine's EBNF. Omits rules and alternatives that match no finite text. Pure.
//
// Quirks of the grammar engine:
// - It reads a range of characters beyond ASCII as a range of bytes. Sets of such characters are written as UTF-8 byte
//   sequences.
// - It reads a set with a single byte as a character. Such a byte is written twice, so that the engine reads it as a byte.
// - It reads all hexadecimal digits after \x as one escape. Escapes are written with \u or \U, which have a fixed length.
import { ServerError } from "../../../runtime/errors.ts";
import {
  asciiChars,
  type ByteRanges,
  type CharSet,
  difference,
  intersection,
  rangesOf,
  utf8Sequences,
} from "../../../runtime/regex/char-set.ts";
import { spend, spendOn } from "../../../runtime/regex/work.ts";
import { type Expression, isNever, type Rules } from "./ebnf.ts";
import { Endings, pruned } from "./endings.ts";

/**
 * Maximum number of UTF-8 byte sequences in a character set that is written inline. A larger set becomes a
 * rule and is written only once.
 */
const maxInlineSequences = 2;

/** Maximum number of elements of a grammar, with repetitions expanded as the engine expands them. */
const maxElements = 50_000;
/** Maximum length of a grammar in characters. */
const maxCharacters = 4_000_000;

/**
 * Writes the grammar from `root` as text. Returns null if no text matches it. Throws `unsupported` if the grammar has more than
 * `limit` elements or is too long.
 */
export function ebnfText(rules: Rules, root: string, limit = maxElements, endings = new Endings(rules)): string | null {
  const live = pruned(rules, root, endings);
  if (live === null) return null;
  const sizes = new Sizes();
  let elements = 0;
  let characters = 0;
  for (const expression of live.values()) {
    const size = sizes.of(expression);
    elements += size.elements;
    characters += size.characters;
  }
  if (elements > limit)
    throw tooLarge(`the grammar has more than ${limit} elements with its repetitions written out; make it smaller`);
  if (characters > maxCharacters) throw tooLong();
  const writer = new Writer();
  const lines = [...live].map(([name, expression]) => {
    const lookahead = rules.lookaheads.get(name);
    const suffix = lookahead === undefined ? "" : ` (= ${writer.part(lookahead)})`;
    return `${name} ::= ${writer.body(expression)}${suffix}`;
  });
  return [...lines, ...writer.sets].join("\n");
}

function tooLarge(message: string): ServerError {
  return new ServerError("unsupported", message);
}

function tooLong(): ServerError {
  return tooLarge(`the grammar takes more than ${maxCharacters} characters; make it smaller`);
}

interface Size {
  /** Number of elements of the grammar, with all repetitions expanded. */
  readonly elements: number;
  /** Number of characters of all texts and rule names of the grammar. */
  readonly characters: number;
}

/**
 * Computes the sizes of expressions. An expression with several uses counts at each use, but its size is computed only once.
 */
class Sizes {
  readonly #known = new Map<Expression, Size>();

  of(expression: Expression): Size {
    switch (expression.kind) {
      case "text":
        return { elements: 1, characters: expression.text.length };
      case "rule":
        return { elements: 1, characters: expression.name.length };
      case "sequence":
      case "choice":
      case "repeat":
        return this.#ofComposite(expression);
      default:
        return { elements: 1, characters: 1 };
    }
  }

  #ofComposite(expression: Expression & { kind: "sequence" | "choice" | "repeat" }): Size {
    const known = this.#known.get(expression);
    if (known !== undefined) return known;
    const size =
      expression.kind === "repeat"
        ? this.#ofRepeat(expression)
        : this.#ofParts(expression.kind === "choice" ? expression.options : expression.parts);
    this.#known.set(expression, size);
    return size;
  }

  #ofRepeat({ of, min, max }: Expression & { kind: "repeat" }): Size {
    const { elements, characters } = this.of(of);
    return { elements: elements * Math.max(1, min, max ?? 1), characters };
  }

  #ofParts(parts: readonly Expression[]): Size {
    let elements = 1;
    let characters = 0;
    spend(1 + parts.length / 4);
    for (const part of parts) {
      const size = this.of(part);
      elements += size.elements;
      characters += size.characters;
    }
    return { elements, characters };
  }
}

/** Writes expressions as EBNF. Large sets become separate rules, collected in `sets`. */
class Writer {
  readonly sets: string[] = [];
  readonly #names = new Map<string, string>();
  readonly #written = new Map<CharSet, string>();
  #left = maxCharacters;

  body(expression: Expression): string {
    if (expression.kind !== "choice") return this.part(expression);
    return expression.options.map((option) => this.part(option)).join(" | ");
  }

  part(expression: Expression): string {
    spend(0.5);
    switch (expression.kind) {
      case "text":
        return quoted(expression.text);
      case "set":
        return this.#set(expression.set);
      case "rule":
        return expression.name;
      case "sequence":
        return expression.parts.length === 0 ? '""' : expression.parts.map((part) => this.part(part)).join(" ");
      case "choice":
        return isNever(expression) ? '""' : `(${this.body(expression)})`;
      case "repeat":
        return `${this.#operand(expression.of)}${quantifier(expression.min, expression.max)}`;
      case "any":
        return anyText(expression.mark, expression.next);
    }
  }

  #operand(expression: Expression): string {
    const text = this.part(expression);
    return ["sequence", "repeat"].includes(expression.kind) || text.includes(" ") ? `(${text})` : text;
  }

  #set(set: CharSet): string {
    const known = this.#written.get(set);
    if (known !== undefined) return known;
    const wide = difference(set, asciiChars);
    const narrow = intersection(set, asciiChars);
    const options = narrow.length === 0 ? [] : [byteClass([...rangesOf(narrow)])];
    if (wide.length > 0) options.push(this.#wideSet(wide));
    const written = options.length === 1 ? (options[0] as string) : `(${options.join(" | ")})`;
    this.#written.set(set, written);
    return written;
  }

  #wideSet(set: CharSet): string {
    spend(set.length / 4);
    const key = set.join();
    const known = this.#names.get(key);
    if (known !== undefined) return known;
    const sequences = utf8Sequences(set);
    const written = sequences.map(byteSequence).join(" | ");
    this.#left -= written.length;
    if (this.#left < 0) throw tooLong();
    if (sequences.length <= maxInlineSequences) return `(${written})`;
    const name = `utf8_${this.sets.length}`;
    this.sets.push(`${name} ::= ${written}`);
    this.#names.set(key, name);
    return name;
  }
}

function byteSequence(bytes: ByteRanges): string {
  return bytes.map((range) => byteClass([range])).join(" ");
}

function byteClass(ranges: readonly (readonly [number, number])[]): string {
  const only = ranges.length === 1 ? ranges[0] : undefined;
  if (only !== undefined && only[0] === only[1]) return `[${classByte(only[0])}${classByte(only[0])}]`;
  return `[${ranges.map(byteRange).join("")}]`;
}

function byteRange([lo, hi]: readonly [number, number]): string {
  return lo === hi ? classByte(lo) : `${classByte(lo)}-${classByte(hi)}`;
}

function classByte(byte: number): string {
  const char = String.fromCharCode(byte);
  return /[A-Za-z0-9]/.test(char) ? char : hexEscape(byte);
}

/** Returns an escape with four or eight digits. \x is unsuitable, because the engine reads all hexadecimal digits after it. */
function hexEscape(code: number): string {
  const hex = code.toString(16);
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}

/**
 * Writes an expression for any text. The engine itself searches for `mark`: it allows every token as long as the text
 * cannot be the start of `mark`.
 */
function anyText(mark: string | null, next: string | null): string {
  if (mark === null) return "TagDispatch(stop_eos=true)";
  if (next === null) return `TagDispatch(stop_eos=false, stop_str=(${quoted(mark)}))`;
  return `TagDispatch((${quoted(mark)}, ${next}), stop_eos=true, loop_after_dispatch=false)`;
}

function quoted(text: string): string {
  spendOn(text.length);
  return `"${text.replace(/[^ !#-[\]-~]/gu, quotedChar)}"`;
}

function quotedChar(char: string): string {
  return char === '"' || char === "\\" ? `\\${char}` : hexEscape(char.codePointAt(0) as number);
}

function quantifier(min: number, max: number | null): string {
  if (max === null) return min === 0 ? "*" : min === 1 ? "+" : `{${min},}`;
  if (min === 0 && max === 1) return "?";
  return min === max ? `{${min}}` : `{${min},${max}}`;
}
