// Owns the text of one answer on its way through a syntax: what is not read yet, what of the read text could still turn out to
// be no call, and the parts found so far. A syntax is a generator over these methods, which wait (yield) for text to come; it
// just returns where the text is not of it, and output-parser.ts gives back what was not settled.
import type { ToolSpec } from "../../generation.ts";
import { isJsonSpace, JsonScanner } from "./json-scanner.ts";
import type { OutputPart } from "./tool-format.ts";

/** Work that may have to wait for text. Must be run to its end once the answer is over. */
export type Wait<T> = Generator<void, T>;

const quote = 0x22;
const openBrace = 0x7b;
/** A longer name is nobody's. */
const maxStringLength = 512;

export class Reading {
  readonly tools: ReadonlyMap<string, ToolSpec>;
  /** What text that is no call belongs to. */
  mode: "content" | "reasoning" = "content";
  /** What was pushed last, after what had not been read before it. */
  text = "";
  /** Where in `text` reading goes on. */
  position = 0;
  /** No text comes any more. */
  isOver = false;
  /** A call was begun and not ended. */
  isInCall = false;
  /** There was thinking in the answer, or before it. */
  hasThought = false;
  parts: OutputPart[] = [];
  /** How much had been pushed before `text`. */
  private offset = 0;
  /** What has been read and is not settled: this, and `text` from `settled` to `position`. Joined only to be given back. */
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

  /** Text that went by while nothing was held. */
  passOver(length: number): number {
    const at = this.offset + this.position;
    this.offset += length;
    return at;
  }

  /** What was read so far is no text of the answer, but a call or a mark. */
  settle(): void {
    this.past = "";
    this.settled = this.position;
  }

  /** What was read and not settled, which this settles. */
  takeUnsettled(): string {
    const text = this.past + this.text.slice(this.settled, this.position);
    this.settle();
    return text;
  }

  /** Gives the text that was read last as text of the answer. */
  giveBack(text: string): void {
    if (text !== "") this.parts.push({ kind: this.mode, text, at: this.offset + this.position - text.length });
  }

  /** Reads up to `end` and gives that as text of the answer; nothing unsettled is before it. */
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

  /** The code of the next character, which is not read; -1 at the end of the answer. */
  *next(): Wait<number> {
    while (this.position === this.text.length) {
      if (this.isOver) return -1;
      yield;
    }
    return this.text.charCodeAt(this.position);
  }

  /** Reads white space; returns what comes next as `next` does. */
  *space(): Wait<number> {
    let code = yield* this.next();
    while (isJsonSpace(code)) {
      this.position++;
      code = yield* this.next();
    }
    return code;
  }

  /** Reads exactly that, or nothing. */
  *literal(wanted: string): Wait<boolean> {
    while (!this.text.startsWith(wanted, this.position)) {
      if (this.isOver || !wanted.startsWith(this.text.slice(this.position))) return false;
      yield;
    }
    this.position += wanted.length;
    return true;
  }

  /** Reads white space and a mark that belongs to the call before it. Where the mark is missing, the white space stays unsettled. */
  *mark(wanted: string): Wait<boolean> {
    yield* this.space();
    if (!(yield* this.literal(wanted))) return false;
    this.settle();
    return true;
  }

  /** Reads up to and with the mark, or nothing; returns what is before it, which has at most `limit` characters. */
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

  /** Reads the name of a tool and the ending after it, one of several, or nothing. */
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

  /** Of the text that comes: the ending after the name; "" where it may still come, null where it cannot. */
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

  /** Reads a JSON string that begins here; null where there is none, or it is longer than the limit. */
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

  /** Reads the JSON object that comes, piece by piece; false where there is none or it is wrong. */
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

  /** Reads a call from its arguments to their end: white space and a JSON object. False where they are none. */
  *callWithArguments(name: string, id: string | null): Wait<boolean> {
    if ((yield* this.space()) !== openBrace) return false;
    this.beginCall(name, id);
    if (!(yield* this.jsonObject((piece) => this.giveArguments(piece)))) return false;
    this.endCall();
    return true;
  }
}
