// Lark parser: turns tokens into definitions. A construct that a grammar cannot express (priorities, templates,
// %declare) is rejected with an error that names the construct. Nesting is bounded. No side effects.
import { spend } from "../../../../runtime/regex/work.ts";
import { unescaped } from "../escapes.ts";
import { larkError } from "./problem.ts";
import { type Token, type TokenKind, tokensOf } from "./tokens.ts";

export type LarkNode =
  | { readonly kind: "name"; readonly name: string; readonly line: number }
  | { readonly kind: "string"; readonly text: string; readonly ignoreCase: boolean }
  | { readonly kind: "range"; readonly from: string; readonly to: string; readonly line: number }
  | { readonly kind: "regex"; readonly pattern: string; readonly flags: string; readonly line: number }
  | { readonly kind: "json"; readonly schema: unknown; readonly line: number }
  | { readonly kind: "sequence"; readonly parts: readonly LarkNode[] }
  | { readonly kind: "choice"; readonly options: readonly LarkNode[] }
  | { readonly kind: "repeat"; readonly of: LarkNode; readonly min: number; readonly max: number | null };

export interface LarkFile {
  /** Rules by their lower-case names, terminals by their upper-case names. */
  readonly definitions: ReadonlyMap<string, LarkNode>;
  readonly ignored: readonly LarkNode[];
  /** Imported terminals by local name, with their names in the library. */
  readonly imports: ReadonlyMap<string, { readonly name: string; readonly line: number }>;
}

const maxDepth = 100;
const maxRepeat = 1000;

/**
 * Parses Lark text. `extensions`: accept the extensions of llguidance (%json inside rules, and a %llguidance header).
 */
export function parseLark(text: string, extensions: boolean): LarkFile {
  return new Parser(tokensOf(text), extensions).file();
}

class Parser {
  readonly #tokens: readonly Token[];
  readonly #extensions: boolean;
  readonly #definitions = new Map<string, LarkNode>();
  readonly #imports = new Map<string, { name: string; line: number }>();
  readonly #ignored: LarkNode[] = [];
  #at = 0;
  #depth = 0;

  constructor(tokens: readonly Token[], extensions: boolean) {
    this.#tokens = tokens;
    this.#extensions = extensions;
  }

  file(): LarkFile {
    while (this.#token.kind !== "end") {
      if (this.#takeKind("line") !== null) continue;
      if (this.#token.kind === "directive") this.#directive();
      else this.#definition();
    }
    return { definitions: this.#definitions, ignored: this.#ignored, imports: this.#imports };
  }

  #definition(): void {
    // "?" and "!" affect only the parse tree, not the text.
    while (this.#takeSymbol("?") || this.#takeSymbol("!"));
    const token = this.#token;
    const name = (this.#takeKind("rule") ?? this.#takeKind("terminal"))?.text;
    if (name === undefined) throw this.#unexpected("a rule");
    if (this.#isSymbol(".")) throw this.#unsupported(`the priority of ${name}`);
    if (this.#isSymbol("{")) throw this.#unsupported(`the template ${name}`);
    if (this.#isSymbol("[")) throw this.#unsupported(`the attributes of ${name}`);
    this.#expect(":");
    if (this.#definitions.has(name)) throw larkError("invalid_value", token.line, `${name} is defined twice`);
    this.#definitions.set(name, this.#choice());
    this.#endLine();
  }

  #directive(): void {
    const token = this.#next();
    switch (token.text) {
      case "%ignore":
        this.#ignored.push(this.#choice());
        break;
      case "%import":
        this.#import();
        break;
      case "%llguidance":
        this.#header(token);
        break;
      default:
        throw larkError("unsupported", token.line, `${token.text} is not supported`);
    }
    this.#endLine();
  }

  #header(token: Token): void {
    if (!this.#extensions)
      throw larkError("unsupported", token.line, "%llguidance is supported only in a grammar of type llguidance");
    const options = this.#json();
    const named = typeof options === "object" && options !== null ? Object.keys(options) : [];
    if (named.length > 0)
      throw larkError(
        "unsupported",
        token.line,
        `the option ${JSON.stringify(named[0])} of %llguidance is not supported`,
      );
  }

  /** Parses `common.NAME`, `common.NAME -> OTHER` or `common (A, B)`. */
  #import(): void {
    const library = this.#next();
    if (library.text !== "common")
      throw larkError(
        "unsupported",
        library.line,
        `expected an import from common, got ${JSON.stringify(library.text)}`,
      );
    if (this.#takeSymbol("(")) {
      do this.#imported(this.#terminal());
      while (this.#takeSymbol(","));
      this.#expect(")");
      return;
    }
    this.#expect(".");
    const terminal = this.#terminal();
    this.#imported(terminal, this.#takeSymbol("->") ? this.#terminal().text : terminal.text);
  }

  #terminal(): Token {
    const token = this.#takeKind("terminal");
    if (token === null) throw this.#unexpected("a terminal");
    return token;
  }

  #imported({ text: name, line }: Token, as = name): void {
    this.#imports.set(as, { name, line });
  }

  #choice(): LarkNode {
    const options = [this.#sequence()];
    while (this.#takeSymbol("|")) {
      spend(1);
      options.push(this.#sequence());
    }
    return options.length === 1 ? (options[0] as LarkNode) : { kind: "choice", options };
  }

  #sequence(): LarkNode {
    const parts: LarkNode[] = [];
    while (this.#startsItem()) parts.push(this.#repeated(this.#item()));
    // The name of a branch affects only the parse tree, not the text.
    if (this.#takeSymbol("->")) this.#next();
    return parts.length === 1 ? (parts[0] as LarkNode) : { kind: "sequence", parts };
  }

  #startsItem(): boolean {
    const { kind, text } = this.#token;
    return kind !== "line" && kind !== "end" && (kind !== "symbol" || !["|", ")", "]", "->", ","].includes(text));
  }

  #repeated(of: LarkNode): LarkNode {
    if (this.#takeSymbol("?")) return { kind: "repeat", of, min: 0, max: 1 };
    if (this.#takeSymbol("*")) return { kind: "repeat", of, min: 0, max: null };
    if (this.#takeSymbol("+")) return { kind: "repeat", of, min: 1, max: null };
    if (this.#takeSymbol("~")) return { kind: "repeat", of, ...this.#bounds() };
    if (this.#isSymbol("{")) return { kind: "repeat", of, ...this.#braces() };
    return of;
  }

  #bounds(): { min: number; max: number } {
    const min = this.#count();
    const max = this.#takeSymbol("..") ? this.#count() : min;
    return this.#ordered(min, max);
  }

  /** Parses the repetitions {n}, {n,} and {n,m}, which llguidance adds. */
  #braces(): { min: number; max: number | null } {
    if (!this.#extensions) throw this.#unsupported("a template");
    this.#expect("{");
    const min = this.#isSymbol(",") ? 0 : this.#count();
    if (this.#takeSymbol("}")) return { min, max: min };
    this.#expect(",");
    if (this.#takeSymbol("}")) return { min, max: null };
    const max = this.#count();
    this.#expect("}");
    return this.#ordered(min, max);
  }

  #ordered(min: number, max: number): { min: number; max: number } {
    if (max < min) throw larkError("invalid_value", this.#token.line, `the bounds ${min}..${max} are out of order`);
    return { min, max };
  }

  #count(): number {
    const token = this.#takeKind("number");
    const count = Number(token?.text);
    if (token === null || count < 0 || count > maxRepeat)
      throw this.#unexpected(`a count of at most ${maxRepeat}`, token ?? this.#token);
    return count;
  }

  #item(): LarkNode {
    spend(1);
    const token = this.#next();
    switch (token.kind) {
      case "rule":
      case "terminal":
        if (token.kind === "rule" && this.#isSymbol("{") && !this.#extensions)
          throw this.#unsupported(`the template ${token.text}`);
        return { kind: "name", name: token.text, line: token.line };
      case "string":
        return this.#string(token);
      case "regex":
        return { kind: "regex", pattern: token.text, flags: token.flags, line: token.line };
      case "directive":
        return this.#embedded(token);
      default:
        return this.#group(token);
    }
  }

  #string(token: Token): LarkNode {
    const text = textOf(token);
    if (!this.#takeSymbol("..")) return { kind: "string", text, ignoreCase: token.flags === "i" };
    const to = this.#takeKind("string");
    if (to === null) throw this.#unexpected("a string");
    return { kind: "range", from: text, to: textOf(to), line: token.line };
  }

  #embedded(token: Token): LarkNode {
    if (token.text !== "%json") throw larkError("unsupported", token.line, `${token.text} is not supported`);
    if (!this.#extensions)
      throw larkError("unsupported", token.line, "%json is supported only in a grammar of type llguidance");
    return { kind: "json", schema: this.#json(), line: token.line };
  }

  #group(token: Token): LarkNode {
    if (token.text === "<" || token.text === "@")
      throw larkError("unsupported", token.line, `a reference that begins with "${token.text}" is not supported`);
    if (token.text === "&" || token.text === "~")
      throw larkError("unsupported", token.line, `the operator "${token.text}" is not supported`);
    if (token.text !== "(" && token.text !== "[") throw this.#unexpected("a part of a rule", token);
    if (++this.#depth > maxDepth)
      throw larkError("invalid_value", token.line, `groups are nested deeper than ${maxDepth}`);
    const of = this.#choice();
    this.#depth--;
    this.#expect(token.text === "(" ? ")" : "]");
    return token.text === "(" ? of : { kind: "repeat", of, min: 0, max: 1 };
  }

  #json(): unknown {
    const token = this.#next();
    try {
      return JSON.parse(token.text);
    } catch {
      throw this.#unexpected("a JSON object", token);
    }
  }

  get #token(): Token {
    return this.#tokens[this.#at] as Token;
  }

  #next(): Token {
    const token = this.#token;
    if (token.kind !== "end") this.#at++;
    return token;
  }

  #isSymbol(symbol: string): boolean {
    return this.#token.kind === "symbol" && this.#token.text === symbol;
  }

  #takeSymbol(symbol: string): boolean {
    if (!this.#isSymbol(symbol)) return false;
    this.#at++;
    return true;
  }

  #takeKind(kind: TokenKind): Token | null {
    return this.#token.kind === kind ? this.#next() : null;
  }

  #expect(symbol: string): void {
    if (!this.#takeSymbol(symbol)) throw this.#unexpected(JSON.stringify(symbol));
  }

  #endLine(): void {
    if (this.#takeKind("line") === null) throw this.#unexpected("the end of the line");
  }

  #unexpected(wanted: string, { kind, text, line } = this.#token): Error {
    const got = kind === "line" ? "the end of the line" : JSON.stringify(text.slice(0, 40));
    return larkError("invalid_value", line, `expected ${wanted}, got ${got}`);
  }

  #unsupported(what: string): Error {
    return larkError("unsupported", this.#token.line, `${what} is not supported`);
  }
}

function textOf({ text, line }: Token): string {
  return unescaped(text, (sequence) => larkError("invalid_value", line, `there is no character ${sequence}`));
}
