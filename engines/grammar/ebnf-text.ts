// Owns how rules are written in the grammar engine's EBNF, for the translators: what can never end is left out first. Pure.
//
// Traps of the engine: a range of characters beyond ASCII is taken as a range of bytes, so such a set is written as the byte
// sequences of its UTF-8; a set of one byte is taken as a character, so the byte is written twice; and \x takes as many
// hexadecimal digits as follow it.
import { ServerError } from "../../runtime/errors.ts";
import { type Expression, isNever, type Rules, repeat, sequence } from "./ebnf.ts";
import {
  asciiChars,
  type ByteRanges,
  type CharSet,
  difference,
  intersection,
  rangesOf,
  utf8Sequences,
} from "./regex/char-set.ts";

/** A set with more byte sequences than this becomes a rule, so that it is written once. */
const maxInlineSequences = 2;

/** Elements of a grammar whose repetitions are written out, as the engine writes them. */
const maxElements = 50_000;

/**
 * The grammar from `root` on as text; null where no text at all matches it. Throws `unsupported` where it has more than
 * `limit` elements.
 */
export function ebnfText(rules: Rules, root: string, limit = maxElements): string | null {
  const live = pruned(rules, root);
  if (live === null) return null;
  let elements = 0;
  for (const expression of live.values()) elements += elementCount(expression);
  if (elements > limit) {
    throw new ServerError(
      "unsupported",
      `the grammar has more than ${limit} elements with its repetitions written out; make it smaller`,
    );
  }
  const writer = new Writer();
  const lines = [...live].map(([name, expression]) => {
    const lookahead = rules.lookaheads.get(name);
    const suffix = lookahead === undefined ? "" : ` (= ${writer.part(lookahead)})`;
    return `${name} ::= ${writer.body(expression)}${suffix}`;
  });
  return [...lines, ...writer.sets].join("\n");
}

function elementCount(expression: Expression): number {
  switch (expression.kind) {
    case "sequence":
      return expression.parts.reduce((sum, part) => sum + elementCount(part), 1);
    case "choice":
      return expression.options.reduce((sum, option) => sum + elementCount(option), 1);
    case "repeat":
      return elementCount(expression.of) * Math.max(1, expression.min, expression.max ?? 1);
    default:
      return 1;
  }
}

/** The rules that `root` needs, without what cannot end; null where `root` cannot. */
export function pruned(rules: Rules, root: string): ReadonlyMap<string, Expression> | null {
  const ending = endingRules(rules);
  if (!ending.has(root)) return null;
  const live = new Map<string, Expression>();
  const todo = [root];
  for (let name = todo.pop(); name !== undefined; name = todo.pop()) {
    if (live.has(name)) continue;
    const expression = withoutDeadEnds(rules.byName.get(name) as Expression, ending);
    live.set(name, expression);
    todo.push(...rulesIn(expression));
  }
  return live;
}

/** The rules from which some finite text can be derived. */
export function endingRules(rules: Rules): ReadonlySet<string> {
  const users = new Map<string, string[]>();
  for (const [name, expression] of rules.byName) {
    for (const used of rulesIn(expression)) users.set(used, [...(users.get(used) ?? []), name]);
  }
  const ending = new Set<string>();
  const todo = [...rules.byName.keys()];
  for (let name = todo.pop(); name !== undefined; name = todo.pop()) {
    const expression = rules.byName.get(name);
    if (expression === undefined || ending.has(name) || !canEnd(expression, ending)) continue;
    ending.add(name);
    todo.push(...(users.get(name) ?? []));
  }
  return ending;
}

/** Whether there is a text of the expression. */
export function hasEnd(expression: Expression, rules: Rules): boolean {
  return canEnd(expression, endingRules(rules));
}

export function canEnd(expression: Expression, ending: ReadonlySet<string>): boolean {
  switch (expression.kind) {
    case "rule":
      return ending.has(expression.name);
    case "sequence":
      return expression.parts.every((part) => canEnd(part, ending));
    case "choice":
      return expression.options.some((option) => canEnd(option, ending));
    case "repeat":
      return expression.min === 0 || canEnd(expression.of, ending);
    default:
      return true;
  }
}

function withoutDeadEnds(expression: Expression, ending: ReadonlySet<string>): Expression {
  switch (expression.kind) {
    case "sequence":
      return sequence(...expression.parts.map((part) => withoutDeadEnds(part, ending)));
    case "choice": {
      const options = expression.options.filter((option) => canEnd(option, ending));
      return { kind: "choice", options: options.map((option) => withoutDeadEnds(option, ending)) };
    }
    case "repeat":
      if (!canEnd(expression.of, ending)) return sequence();
      return repeat(withoutDeadEnds(expression.of, ending), expression.min, expression.max);
    default:
      return expression;
  }
}

function* rulesIn(expression: Expression): Iterable<string> {
  if (expression.kind === "rule") yield expression.name;
  else if (expression.kind === "sequence") for (const part of expression.parts) yield* rulesIn(part);
  else if (expression.kind === "choice") for (const option of expression.options) yield* rulesIn(option);
  else if (expression.kind === "repeat") yield* rulesIn(expression.of);
  else if (expression.kind === "any" && expression.next !== null) yield expression.next;
}

/** Writes expressions; large sets become rules of their own, in `sets`. */
class Writer {
  readonly sets: string[] = [];
  readonly #names = new Map<string, string>();

  body(expression: Expression): string {
    if (expression.kind !== "choice") return this.part(expression);
    return expression.options.map((option) => this.part(option)).join(" | ");
  }

  part(expression: Expression): string {
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
    const wide = difference(set, asciiChars);
    const narrow = intersection(set, asciiChars);
    const options = narrow.length === 0 ? [] : [byteClass([...rangesOf(narrow)])];
    if (wide.length > 0) options.push(this.#wideSet(wide));
    return options.length === 1 ? (options[0] as string) : `(${options.join(" | ")})`;
  }

  #wideSet(set: CharSet): string {
    const key = set.join();
    const known = this.#names.get(key);
    if (known !== undefined) return known;
    const sequences = utf8Sequences(set);
    const written = sequences.map(byteSequence).join(" | ");
    if (sequences.length <= maxInlineSequences) return `(${written})`;
    const name = `chars_${this.sets.length}`;
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

/** Of four or eight digits: those of \x go on as far as there are hexadecimal digits. */
function hexEscape(code: number): string {
  const hex = code.toString(16);
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}

/** The engine's own way to look for a mark: a mask of any text but its beginnings costs it nothing. */
function anyText(mark: string | null, next: string | null): string {
  if (mark === null) return "TagDispatch(stop_eos=true)";
  if (next === null) return `TagDispatch(stop_eos=false, stop_str=(${quoted(mark)}))`;
  return `TagDispatch((${quoted(mark)}, ${next}), stop_eos=true, loop_after_dispatch=false)`;
}

function quoted(text: string): string {
  return `"${[...text].map(quotedChar).join("")}"`;
}

function quotedChar(char: string): string {
  const code = char.codePointAt(0) as number;
  if (code < 0x20 || code >= 0x7f) return hexEscape(code);
  return char === '"' || char === "\\" ? `\\${char}` : char;
}

function quantifier(min: number, max: number | null): string {
  if (max === null) return min === 0 ? "*" : min === 1 ? "+" : `{${min},}`;
  if (min === 0 && max === 1) return "?";
  return min === max ? `{${min}}` : `{${min},${max}}`;
}
