// Parser of regular expressions: the syntax of ECMAScript with the `u` flag, as in JSON schemas. Constructs that an automaton
// cannot represent (backreferences, lookaround, word boundaries) are rejected with an error that names the construct. Linear in
// the pattern. No side effects.

import {
  anyChar,
  bothCases,
  type CharSet,
  charOf,
  charSet,
  charsOf,
  complement,
  intersection,
  noChar,
  union,
  unionOf,
} from "./char-set.ts";
import { controls, escapedSets, latinChars, lineEnds } from "./escapes.ts";
import { type Regex, type RegexNode, RegexProblem } from "./syntax.ts";
import { propertySet } from "./unicode/property-set.ts";
import { spend } from "./work.ts";

const maxLength = 10_000;
const maxDepth = 100;
/** Maximum bound of a repetition. Larger bounds are rejected, because each repetition adds states to the automaton. */
export const maxRepeat = 1000;

const lineChars = complement(lineEnds);

export interface RegexFlags {
  /** Flag i of the pattern: letters match in either case. */
  readonly ignoreCase?: boolean;
  /** Flag s of the pattern: a dot also matches line ends. */
  readonly dotAll?: boolean;
}

export function parseRegex(pattern: string, flags: RegexFlags = {}): Regex {
  if (pattern.length > maxLength) {
    throw new RegexProblem(
      "invalid_value",
      `expected a pattern of at most ${maxLength} characters, got ${pattern.length}`,
    );
  }
  return new Parser(pattern, flags).parse();
}

class Parser {
  readonly #chars: readonly string[];
  readonly #flags: RegexFlags;
  readonly #properties = new Map<string, CharSet>();
  #at = 0;
  #depth = 0;

  constructor(pattern: string, flags: RegexFlags) {
    this.#chars = [...pattern];
    spend(this.#chars.length / 2);
    this.#flags = flags;
  }

  parse(): Regex {
    const ahead: { node: RegexNode; negated: boolean }[] = [];
    const isAnchored = this.#peek() === "^" && this.#looksAt("^(?=", "^(?!");
    if (isAnchored) {
      this.#at++;
      while (this.#looksAt("(?=", "(?!")) {
        this.#at += 3;
        const negated = this.#chars[this.#at - 1] === "!";
        ahead.push({ node: this.#group(), negated });
      }
    }
    const node = this.#choice();
    if (this.#at < this.#chars.length) throw this.#invalid(`unmatched ")"`);
    return { node: isAnchored ? { kind: "sequence", parts: [{ kind: "start" }, node] } : node, ahead };
  }

  #choice(): RegexNode {
    const options = [this.#sequence()];
    while (this.#take("|")) options.push(this.#sequence());
    return options.length === 1 ? (options[0] as RegexNode) : { kind: "choice", options };
  }

  #sequence(): RegexNode {
    const parts: RegexNode[] = [];
    for (let char = this.#peek(); char !== undefined && char !== "|" && char !== ")"; char = this.#peek()) {
      parts.push(this.#quantified(this.#atom()));
    }
    return parts.length === 1 ? (parts[0] as RegexNode) : { kind: "sequence", parts };
  }

  #quantified(of: RegexNode): RegexNode {
    const bounds = this.#quantifier();
    if (bounds === null) return of;
    if (of.kind === "start" || of.kind === "end") throw this.#invalid("nothing to repeat");
    // Laziness is ignored, because it does not change which texts match as a whole.
    this.#take("?");
    if (this.#looksAt("*", "+", "?", "{")) throw this.#invalid("nothing to repeat");
    return { kind: "repeat", of, ...bounds };
  }

  #quantifier(): { min: number; max: number | null } | null {
    if (this.#take("*")) return { min: 0, max: null };
    if (this.#take("+")) return { min: 1, max: null };
    if (this.#take("?")) return { min: 0, max: 1 };
    if (this.#peek() !== "{") return null;
    const end = this.#chars.indexOf("}", this.#at);
    const bounds = /^(\d+)(,(\d*))?$/.exec(this.#chars.slice(this.#at + 1, end === -1 ? this.#at + 1 : end).join(""));
    if (bounds === null) throw this.#invalid('expected a bound like "{2,5}"');
    this.#at = end + 1;
    const min = Number(bounds[1]);
    const max = bounds[2] === undefined ? min : bounds[3] === "" ? null : Number(bounds[3]);
    if (max !== null && max < min) throw this.#invalid(`the bounds {${min},${max}} are out of order`);
    if (Math.max(min, max ?? 0) > maxRepeat) {
      throw new RegexProblem(
        "unsupported",
        `expected bounds of repetitions of at most ${maxRepeat}, got ${Math.max(min, max ?? 0)}`,
      );
    }
    return { min, max };
  }

  #atom(): RegexNode {
    const char = this.#next();
    switch (char) {
      case "^":
        return { kind: "start" };
      case "$":
        return { kind: "end" };
      case ".":
        return { kind: "set", set: this.#flags.dotAll ? anyChar : lineChars };
      case "[":
        return { kind: "set", set: this.#class() };
      case "(":
        this.#groupHead();
        return this.#group();
      case "\\":
        return this.#escape();
      case "*":
      case "+":
      case "?":
      case "{":
        throw this.#invalid("nothing to repeat");
      default:
        return this.#literal(charOf(char.codePointAt(0) as number));
    }
  }

  #groupHead(): void {
    if (!this.#take("?")) return;
    if (this.#take(":")) return;
    const named = /^<[\p{ID_Start}_$][\p{ID_Continue}$]*>/u.exec(this.#chars.slice(this.#at, this.#at + 100).join(""));
    if (named !== null) {
      this.#at += [...named[0]].length;
      return;
    }
    if (this.#looksAt("<=", "<!"))
      throw new RegexProblem("unsupported", `the lookbehind "(?${this.#rest(2)}" is not supported`);
    if (this.#looksAt("=", "!")) {
      throw new RegexProblem("unsupported", `the lookahead "(?${this.#rest(1)}" is not supported here`);
    }
    throw new RegexProblem("unsupported", `the group "(?${this.#rest(3)}" is not supported`);
  }

  /** Parses a group. Begins after the opening parenthesis and ends with the closing one. */
  #group(): RegexNode {
    if (++this.#depth > maxDepth) throw this.#invalid(`groups are nested deeper than ${maxDepth}`);
    const node = this.#choice();
    if (!this.#take(")")) throw this.#invalid(`missing ")"`);
    this.#depth--;
    return node;
  }

  #escape(): RegexNode {
    const char = this.#peek();
    if (char !== undefined && /[1-9]/.test(char))
      throw new RegexProblem("unsupported", `the backreference "\\${char}" is not supported`);
    if (char === "k") throw new RegexProblem("unsupported", 'the backreference "\\k" is not supported');
    if (char === "b" || char === "B")
      throw new RegexProblem("unsupported", `the word boundary "\\${char}" is not supported`);
    return this.#literal(this.#escapedSet());
  }

  /** Parses an escape after its backslash, inside or outside a character class. */
  #escapedSet(): CharSet {
    const char = this.#next();
    const known = escapedSets.get(char);
    if (known !== undefined) return known;
    const control = controls.get(char);
    if (control !== undefined) return charsOf(control);
    if (char === "p" || char === "P") return this.#property(char === "P");
    if (char === "x") return this.#codePoint(this.#hex(2));
    if (char === "u") return this.#codePoint(this.#unicodeEscape());
    if (char === "c") {
      const letter = this.#next();
      if (!/[A-Za-z]/.test(letter)) throw this.#invalid('expected a letter after "\\c"');
      return this.#codePoint(letter.charCodeAt(0) % 32);
    }
    if (/[A-Za-z0-9]/.test(char)) throw this.#invalid(`there is no escape "\\${char}"`);
    return charsOf(char);
  }

  #codePoint(code: number): CharSet {
    if (code > 0x10ffff) throw this.#invalid(`there is no character ${code.toString(16)}`);
    return charOf(code);
  }

  #unicodeEscape(): number {
    if (this.#take("{")) {
      const end = this.#chars.indexOf("}", this.#at);
      const digits = this.#chars.slice(this.#at, end === -1 ? this.#at : end).join("");
      if (!/^[0-9a-fA-F]{1,8}$/.test(digits)) throw this.#invalid('expected hexadecimal digits in "\\u{…}"');
      this.#at = end + 1;
      return Number.parseInt(digits, 16);
    }
    const high = this.#hex(4);
    if (high < 0xd800 || high > 0xdbff || !this.#looksAt("\\u")) return high;
    this.#at += 2;
    const low = this.#hex(4);
    if (low < 0xdc00 || low > 0xdfff) throw this.#invalid("half of a surrogate pair");
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  #hex(count: number): number {
    const digits = this.#chars.slice(this.#at, this.#at + count).join("");
    if (digits.length !== count || !/^[0-9a-fA-F]+$/.test(digits))
      throw this.#invalid(`expected ${count} hexadecimal digits`);
    this.#at += count;
    return Number.parseInt(digits, 16);
  }

  #property(negated: boolean): CharSet {
    const end = this.#chars.indexOf("}", this.#at);
    if (!this.#take("{") || end === -1) throw this.#invalid('expected a property like "\\p{L}"');
    const name = this.#chars.slice(this.#at, end).join("");
    this.#at = end + 1;
    const key = `${negated} ${name}`;
    const known = this.#properties.get(key);
    if (known !== undefined) return known;
    const set = propertySet(name);
    if (set === null) throw this.#invalid(`there is no character property "${name.slice(0, 40)}"`);
    const made = negated ? complement(set) : set;
    this.#properties.set(key, made);
    return made;
  }

  #class(): CharSet {
    const negated = this.#take("^");
    const sets: CharSet[] = [];
    while (!this.#take("]")) {
      const from = this.#classChar();
      if (this.#peek() !== "-" || this.#chars[this.#at + 1] === "]") {
        sets.push(from);
        continue;
      }
      this.#at++;
      sets.push(this.#range(from, this.#classChar()));
    }
    const set = unionOf(sets);
    const folded = this.#flags.ignoreCase ? this.#folded(set) : set;
    return negated ? complement(folded) : folded;
  }

  #range(from: CharSet, to: CharSet): CharSet {
    const lo = from[0];
    const hi = to[1];
    const isOneEach = from.length === 2 && to.length === 2 && lo === from[1] && hi === to[0];
    if (!isOneEach || lo === undefined || hi === undefined) throw this.#invalid("expected a range of two characters");
    if (lo > hi) throw this.#invalid("a range is out of order");
    return charSet([[lo, hi]]);
  }

  #classChar(): CharSet {
    const char = this.#next();
    if (char !== "\\") return charOf(char.codePointAt(0) as number);
    if (this.#take("b")) return charsOf("\b");
    if (this.#take("-")) return charsOf("-");
    return this.#escapedSet();
  }

  #literal(set: CharSet): RegexNode {
    return { kind: "set", set: this.#flags.ignoreCase ? this.#folded(set) : set };
  }

  #folded(set: CharSet): CharSet {
    const both = bothCases(set);
    if (both !== null) return both;
    // A set that is too large for bothCases() is assumed to contain both cases of all its non-Latin letters. So the other case
    // is added only for its Latin letters.
    return union(set, bothCases(intersection(set, latinChars)) ?? noChar);
  }

  #peek(): string | undefined {
    return this.#chars[this.#at];
  }

  #next(): string {
    const char = this.#chars[this.#at++];
    if (char === undefined) throw this.#invalid("the pattern ends too early");
    return char;
  }

  #take(char: string): boolean {
    if (this.#chars[this.#at] !== char) return false;
    this.#at++;
    return true;
  }

  #looksAt(...texts: readonly string[]): boolean {
    return texts.some((text) => this.#rest(text.length) === text);
  }

  #rest(count: number): string {
    return this.#chars.slice(this.#at, this.#at + count).join("");
  }

  #invalid(what: string): RegexProblem {
    return new RegexProblem("invalid_value", `${what} (at character ${this.#at})`);
  }
}
