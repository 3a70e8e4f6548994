// Owns cutting the text of a Lark grammar into tokens. A token that nothing can be made of is refused here, with its line. Pure,
// linear in the text.
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
  /** Letters behind a string or a regular expression. */
  readonly flags: string;
  readonly line: number;
}

const maxLength = 262_144;

/** Tried in this order at each place. */
const patterns: readonly (readonly [TokenKind | "skip", RegExp])[] = [
  ["skip", /[ \t\r]+|(?:\/\/|#)[^\n]*|\\\n/y],
  // A line that begins with a bar goes on with the rule above it.
  ["skip", /\n(?:[ \t\r\n]|(?:\/\/|#)[^\n]*\n)*(?=\|)/y],
  ["line", /\n[ \t\r\n]*/y],
  ["directive", /%[a-z_]+/y],
  ["rule", /_?[a-z][a-z0-9_]*/y],
  ["terminal", /_?[A-Z][A-Z0-9_]*/y],
  ["string", /"((?:[^"\\\n]|\\.)*)"(i?)/y],
  ["regex", /\/((?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)\/([a-z]*)/y],
  ["number", /-?\d+/y],
  ["symbol", /->|\.\.|[:|()[\]?!*+~.,{}<>@&=]/y],
];

export function tokensOf(text: string): readonly Token[] {
  if (text.length > maxLength)
    throw larkError("invalid_value", 1, `expected at most ${maxLength} characters, got ${text.length}`);
  const tokens: Token[] = [];
  let line = 1;
  for (let at = 0; at < text.length; ) {
    const [kind, match] = matchAt(text, at, line);
    if (kind !== "skip") tokens.push({ kind, text: match[1] ?? match[0], flags: match[2] ?? "", line });
    let length = match[0].length;
    if (kind === "directive" && (match[0] === "%json" || match[0] === "%llguidance")) {
      const json = jsonAt(text, at + length, line);
      tokens.push({ kind: "json", text: json.trim(), flags: "", line });
      length += json.length;
    }
    for (let i = at; i < at + length; i++) if (text[i] === "\n") line++;
    at += length;
  }
  tokens.push({ kind: "line", text: "", flags: "", line }, { kind: "end", text: "the end", flags: "", line });
  return tokens;
}

function matchAt(text: string, at: number, line: number): readonly [TokenKind | "skip", RegExpExecArray] {
  for (const [kind, pattern] of patterns) {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match !== null) return [kind, match];
  }
  throw larkError(
    "invalid_value",
    line,
    `there is no token that begins with ${JSON.stringify(text.slice(at, at + 20))}`,
  );
}

/** The JSON object that follows, up to its closing brace. */
function jsonAt(text: string, from: number, line: number): string {
  let depth = 0;
  let isText = false;
  for (let at = from; at < text.length; at++) {
    const char = text[at];
    if (isText) {
      if (char === "\\") at++;
      else if (char === '"') isText = false;
    } else if (char === '"') isText = true;
    else if (char === "{" || char === "[") depth++;
    else if ((char === "}" || char === "]") && --depth <= 0) return text.slice(from, at + 1);
  }
  throw larkError("invalid_value", line, "expected a JSON object that is closed");
}
