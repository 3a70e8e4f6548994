// EBNF writer: writes rules in the grammar engine's EBNF. Omits rules and alternatives that match no finite string.
// No side effects.
//
// Quirks of the grammar engine:
// - It reads a range of characters beyond ASCII as a range of bytes. See byte-sets.ts.
// - It merges states that are not equivalent. See factoring.ts.
// - It reads a set with a single byte as a character. Such a byte is written twice, so that the engine reads a byte.
// - It reads all hexadecimal digits after \x as one escape. Escapes are written with \u or \U, whose length is fixed.
import { ServerError } from "../../../../runtime/errors.ts";
import { rangesOf } from "../../../../runtime/regex/char-set.ts";
import { spend, spendOn } from "../../../../runtime/regex/work.ts";
import { ByteSets } from "./byte-sets.ts";
import { Endings, pruned } from "./endings.ts";
import { type Expression, isNever, type Rules } from "./expressions.ts";
import { factored } from "./factoring.ts";

/** Maximum number of elements of a grammar, with repetitions expanded as the engine expands them. */
const maxElements = 50_000;
/** Maximum length of a grammar in characters. */
const maxCharacters = 4_000_000;

/**
 * Writes the rules that `root` needs as a grammar. Returns null if no string matches `root`. Throws `unsupported` if
 * the grammar has more than `limit` elements or is too long.
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
  const sets = new ByteSets();
  const written = new Map([...live].map(([name, expression]) => [name, sets.without(expression)]));
  const lookaheads = new Map([...rules.lookaheads].map(([name, expression]) => [name, sets.without(expression)]));
  for (const [name, expression] of sets.rules) written.set(name, expression);
  const lines: string[] = [];
  let left = maxCharacters;
  for (const [name, expression] of factored(written)) {
    const lookahead = lookaheads.get(name);
    const line = `${name} ::= ${body(expression)}${lookahead === undefined ? "" : ` (= ${part(lookahead)})`}`;
    left -= line.length;
    if (left < 0) throw tooLong();
    lines.push(line);
  }
  return lines.join("\n");
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
 * Computes the sizes of expressions. An expression that is used several times counts each time, but its size is
 * computed only once.
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

function body(expression: Expression): string {
  return expression.kind === "choice" ? expression.options.map(part).join(" | ") : part(expression);
}

function part(expression: Expression): string {
  spend(0.5);
  switch (expression.kind) {
    case "text":
      return quoted(expression.text);
    case "bytes":
      return byteClass([...rangesOf(expression.ranges)]);
    case "rule":
      return expression.name;
    case "sequence":
      return expression.parts.length === 0 ? '""' : expression.parts.map(part).join(" ");
    case "choice":
      return isNever(expression) ? '""' : `(${body(expression)})`;
    case "repeat":
      return `${operand(expression.of)}${quantifier(expression.min, expression.max)}`;
    case "any":
      return anyText(expression.mark, expression.next);
    case "set":
      throw new Error("a set is written as bytes");
  }
}

function operand(expression: Expression): string {
  const written = part(expression);
  return ["sequence", "repeat"].includes(expression.kind) || written.includes(" ") ? `(${written})` : written;
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

/**
 * Returns a \u or \U escape, which has four or eight digits. \x is unsuitable, because the engine reads all
 * hexadecimal digits after it.
 */
function hexEscape(code: number): string {
  const hex = code.toString(16);
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}

/**
 * Writes an expression for any text. The engine itself searches for `mark`: it allows every token while the text
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
