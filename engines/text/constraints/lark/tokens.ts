// Lark tokenizer: splits the text of a Lark grammar into tokens. Rejects text that matches no token and names its line.
// Takes time linear in the length of the text. No side effects.
import { spend, spendOn } from "../../../../runtime/regex/work.ts";
import { larkError } from "./problem.ts";

export type TokenKind =
  | "rule"
  | "terminal"
  | "string"
  | "regex"
  | "number"
  | "symbol"
  | "directive"
  | "json"
  | "line"
  | "end";

export interface Token {
  readonly kind: TokenKind;
  readonly text: string;
  /** The letters after a string or a regular expression, for example "i". */
  readonly flags: string;
  readonly line: number;
}

const maxLength = 262_144;

/** Token kinds in the order in which they are tried, each with its possible first characters and its pattern. */
const patterns: readonly (readonly [kind: TokenKind | "skip", first: RegExp, pattern: RegExp])[] = [
  ["skip", /[ \t\r/#\\]/, /[ \t\r]+|(?:\/\/|#)[^\n]*|\\\n/y],
  ["directive", /%/, /%[a-z_]+/y],
  ["rule", /[_a-z]/, /_?[a-z][a-z0-9_]*/y],
  ["terminal", /[_A-Z]/, /_?[A-Z][A-Z0-9_]*/y],
  ["string", /"/, /"((?:[^"\\\n]|\\.)*)"(i?)/y],
  ["regex", /\//, /\/((?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)\/([a-z]*)/y],
  ["number", /[-0-9]/, /-?\d+/y],
  ["symbol", /[^\s\w]/, /->|\.\.|[:|()[\]?!*+~.,{}<>@&=]/y],
];

/** Patterns by the code of the first character they may match. */
const candidates = Array.from({ length: 128 }, (_, code) =>
  patterns.filter(([, first]) => first.test(String.fromCharCode(code))),
);

export function tokensOf(text: string): readonly Token[] {
  if (text.length > maxLength)
    throw larkError("invalid_value", 1, `expected at most ${maxLength} characters, got ${text.length}`);
  return new Tokenizer(text).tokens();
}

class Tokenizer {
  readonly #text: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  #line = 1;

  constructor(text: string) {
    this.#text = text;
  }

  tokens(): readonly Token[] {
    while (this.#at < this.#text.length) {
      spend(1);
      if (this.#text[this.#at] === "\n") this.#lines();
      else this.#token();
    }
    this.#push("line", "");
    this.#push("end", "the end");
    return this.#tokens;
  }

  #push(kind: TokenKind, text: string, flags = ""): void {
    this.#tokens.push({ kind, text, flags, line: this.#line });
  }

  /** Consumes a line end and the empty lines and comments after it. If "|" follows, the rule continues. */
  #lines(): void {
    const end = endOfLines(this.#text, this.#at);
    if (this.#text[end] !== "|") this.#push("line", "");
    this.#move(end);
  }

  #token(): void {
    const from = this.#at;
    for (const [kind, , pattern] of candidates[this.#text.charCodeAt(from)] ?? []) {
      pattern.lastIndex = from;
      if (!pattern.test(this.#text)) continue;
      this.#at = pattern.lastIndex;
      const found = this.#text.slice(from, this.#at);
      if (kind === "skip") {
        if (found.startsWith("\\")) this.#line++;
      } else if (kind === "string" || kind === "regex") this.#pushQuoted(kind, found);
      else this.#push(kind, found);
      if (found === "%json" || found === "%llguidance") this.#json();
      return;
    }
    const rest = JSON.stringify(this.#text.slice(from, from + 20));
    throw larkError("invalid_value", this.#line, `expected a token, got ${rest}`);
  }

  /** Adds a token with the text between the delimiters, and the flags after the second delimiter. */
  #pushQuoted(kind: TokenKind, found: string): void {
    const end = found.lastIndexOf(found[0] as string);
    this.#push(kind, found.slice(1, end), found.slice(end + 1));
  }

  /** Consumes the JSON object that follows, up to and including its closing brace. */
  #json(): void {
    const end = endOfJson(this.#text, this.#at);
    if (end === null)
      throw larkError("invalid_value", this.#line, "expected a complete JSON object, got one without its end");
    this.#push("json", this.#text.slice(this.#at, end).trim());
    this.#move(end);
  }

  #move(to: number): void {
    spendOn(to - this.#at);
    for (; this.#at < to; this.#at++) if (this.#text[this.#at] === "\n") this.#line++;
  }
}

/** Returns the position after a line end and all blanks, empty lines and comment lines that follow it. */
function endOfLines(text: string, from: number): number {
  for (let at = from; ; ) {
    while (at < text.length && " \t\r\n".includes(text[at] as string)) at++;
    const end = text[at] === "#" || text.startsWith("//", at) ? text.indexOf("\n", at) : -1;
    if (end === -1) return at;
    at = end;
  }
}

function endOfJson(text: string, from: number): number | null {
  let depth = 0;
  let isText = false;
  for (let at = from; at < text.length; at++) {
    const char = text[at];
    if (isText) {
      if (char === "\\") at++;
      else if (char === '"') isText = false;
    } else if (char === '"') isText = true;
    else if (char === "{" || char === "[") depth++;
    else if ((char === "}" || char === "]") && --depth <= 0) return at + 1;
  }
  return null;
}
