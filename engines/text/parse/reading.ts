// Reading state of one output: the unread text, the unsettled text (text that was read but perhaps does not belong to
// a call), and the parts found so far. A syntax is a generator function that reads with the methods of this class.
// The methods yield to wait for more text. If the text does not match, the syntax returns, and output-parser.ts emits
// the unsettled text as ordinary output.
import type { ToolSpec } from "../../generation.ts";
import { isJsonSpace, JsonScanner } from "./json-scanner.ts";
import type { OutputPart } from "./tool-format.ts";

/**
 * A computation that yields to wait for more text. After the end of the output, it must be resumed until it returns.
 */
export type Wait<T> = Generator<void, T>;

const quote = 0x22;
const openBrace = 0x7b;
/** Maximum length of a string that is read as a name. A longer name matches no tool. */
const maxStringLength = 512;

export class Reading {
  readonly tools: ReadonlyMap<string, ToolSpec>;
  /** Kind of the ordinary text (outside calls) at this position. */
  mode: "content" | "reasoning" = "content";
  /** Unread text of earlier pushes, followed by the text pushed last. */
  text = "";
  /** Index in `text` of the first unread character. */
  position = 0;
  /** True if no more text will come. */
  isOver = false;
  /** True if a call has begun and not ended. */
  isInCall = false;
  /** True if the output, or the end of the prompt, contained thinking. */
  hasThought = false;
  parts: OutputPart[] = [];
  /** Number of characters of the output before `text`. */
  private offset = 0;
  /**
   * Unsettled text: text that was read but perhaps does not belong to a call or a tag. It consists of `past` and
   * text[settled .. position), which are joined only when they are emitted.
   */
  private past = "";
  private settled = 0;

  constructor(tools: readonly ToolSpec[]) {
    this.tools = new Map(tools.map((tool) => [tool.name, tool]));
  }

  push(text: string): void {
    if (this.settled < this.position) this.past += this.text.slice(this.settled, this.position);
    this.offset += this.position;
    this.text = this.position === this.text.length ? text : this.text.slice(this.position) + text;
    this.position = 0;
    this.settled = 0;
  }

  /**
   * Counts text that the caller emits directly, without `push`. Call only if no text is held back. Returns the
   * position of the text in the output, in characters.
   */
  passOver(length: number): number {
    const at = this.offset + this.position;
    this.offset += length;
    return at;
  }

  /** Settles the text read so far: it belongs to a call or a tag, so it will not be emitted as ordinary text. */
  settle(): void {
    this.past = "";
    this.settled = this.position;
  }

  /** Returns the unsettled text (read, but perhaps not part of a call or a tag), and marks it as settled. */
  takeUnsettled(): string {
    const text = this.past + this.text.slice(this.settled, this.position);
    this.settle();
    return text;
  }

  /** Emits `text`, which was read last, as ordinary text of the output. */
  giveBack(text: string): void {
    if (text !== "") this.parts.push({ kind: this.mode, text, at: this.offset + this.position - text.length });
  }

  /**
   * Reads the text up to index `end` and emits it as ordinary text of the output. Call only if all text read so far has
   * been emitted or settled (accepted as part of a call or a tag).
   */
  giveText(end: number): void {
    const text = this.text.slice(this.position, end);
    this.position = end;
    this.settle();
    this.giveBack(text);
  }

  beginCall(name: string, id: string | null): void {
    this.isInCall = true;
    this.parts.push({ kind: "call", name, id });
  }

  giveArguments(text: string): void {
    if (text !== "") this.parts.push({ kind: "arguments", text });
  }

  endCall(): void {
    this.isInCall = false;
    this.parts.push({ kind: "call-end" });
    this.settle();
  }

  /** Returns the code of the next character without reading it; -1 at the end of the output. */
  *next(): Wait<number> {
    while (this.position === this.text.length) {
      if (this.isOver) return -1;
      yield;
    }
    return this.text.charCodeAt(this.position);
  }

  /** Reads white space. Returns the code of the character after it without reading that character. */
  *space(): Wait<number> {
    let code = yield* this.next();
    while (isJsonSpace(code)) {
      this.position++;
      code = yield* this.next();
    }
    return code;
  }

  /** Reads `wanted` and returns true. If other text follows, reads nothing and returns false. */
  *literal(wanted: string): Wait<boolean> {
    while (!this.text.startsWith(wanted, this.position)) {
      if (this.isOver || !wanted.startsWith(this.text.slice(this.position))) return false;
      yield;
    }
    this.position += wanted.length;
    return true;
  }

  /**
   * Reads white space and a tag that belongs to the previous call. If the tag is missing, the white space stays
   * unsettled: it may turn out to be ordinary text.
   */
  *mark(wanted: string): Wait<boolean> {
    yield* this.space();
    if (!(yield* this.literal(wanted))) return false;
    this.settle();
    return true;
  }

  /**
   * Reads up to and including `mark` and returns the text before it. Returns null and reads nothing if that text is
   * longer than `limit` characters, or if the output ends first.
   */
  *until(mark: string, limit: number): Wait<string | null> {
    for (;;) {
      const ahead = this.text.slice(this.position, this.position + limit + mark.length);
      const end = ahead.indexOf(mark);
      if (end >= 0) {
        this.position += end + mark.length;
        return ahead.slice(0, end);
      }
      if (this.isOver || ahead.length === limit + mark.length) return null;
      yield;
    }
  }

  /** Reads a tool's name and one of the endings after it. If other text follows, reads nothing and returns null. */
  *toolName(endings: readonly string[]): Wait<{ readonly name: string; readonly ending: string } | null> {
    for (;;) {
      let isPossible = false;
      for (const name of this.tools.keys()) {
        const found = this.endingAfter(name, endings);
        if (found === null) continue;
        if (found !== "") {
          this.position += name.length + found.length;
          return { name, ending: found };
        }
        isPossible = true;
      }
      if (this.isOver || !isPossible) return null;
      yield;
    }
  }

  /**
   * Checks whether the unread text begins with `name` and one of the endings. Returns the ending; "" if more text is
   * needed to decide; null if the text begins differently.
   */
  private endingAfter(name: string, endings: readonly string[]): string | null {
    if (!this.text.startsWith(name, this.position)) {
      return name.startsWith(this.text.slice(this.position)) ? "" : null;
    }
    const from = this.position + name.length;
    const whole = endings.find((ending) => this.text.startsWith(ending, from));
    if (whole !== undefined) return whole;
    const rest = this.text.slice(from);
    return endings.some((ending) => ending.startsWith(rest)) ? "" : null;
  }

  /**
   * Reads a JSON string at this position. Returns null if there is none, or if it is longer than `limit` characters.
   */
  *jsonString(limit = maxStringLength): Wait<string | null> {
    if ((yield* this.next()) !== quote) return null;
    this.position++;
    let source = '"';
    for (let code = yield* this.next(); code !== quote; code = yield* this.next()) {
      if (code < 0x20 || source.length > limit) return null;
      source += this.text.charAt(this.position++);
      if (code !== 0x5c) continue;
      if ((yield* this.next()) < 0x20) return null;
      source += this.text.charAt(this.position++);
    }
    this.position++;
    try {
      return JSON.parse(`${source}"`) as string;
    } catch {
      return null;
    }
  }

  /** Reads a JSON object piece by piece. Returns false if there is none or it is invalid. */
  *jsonObject(give: (piece: string) => void): Wait<boolean> {
    const scanner = new JsonScanner();
    for (;;) {
      if ((yield* this.next()) < 0) return false;
      const from = this.position;
      this.position = scanner.scan(this.text, from);
      if (this.position > from) give(this.text.slice(from, this.position));
      if (scanner.isWhole) return true;
      if (this.position < this.text.length) return false;
    }
  }

  /** Reads the arguments of a call: white space and a JSON object. Returns false if they are missing or invalid. */
  *callWithArguments(name: string, id: string | null): Wait<boolean> {
    if ((yield* this.space()) !== openBrace) return false;
    this.beginCall(name, id);
    if (!(yield* this.jsonObject((piece) => this.giveArguments(piece)))) return false;
    this.endCall();
    return true;
  }
}
