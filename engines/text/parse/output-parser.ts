// Output parser: splits a model's output into content, reasoning and tagged sections. A tagged section begins with a
// tag (`Mark`), which is a fixed text of the tool-call format such as "<tool_call>". The parser knows no call syntax:
// each tag has a function that reads the text after it. A format creates one parser per output. push() is called once
// per token.
import { isJsonSpace } from "./json-scanner.ts";
import type { Reading, Wait } from "./reading.ts";
import type { OutputParser, OutputPart } from "./tool-format.ts";

/** A tag of the format, for example "<tool_call>". When it occurs in the output, `read` reads the text after it. */
export interface Mark {
  readonly text: string;
  /** True if `read` reads the tag itself too. */
  readonly isKept?: boolean;
  readonly read: (reading: Reading) => Wait<void>;
}

export interface Marks {
  /** Tags that are recognized only at the start of the output or directly after another tagged section. */
  readonly first: readonly Mark[];
  readonly inContent: readonly Mark[];
  readonly inReasoning: readonly Mark[];
}

/**
 * Maximum number of white space characters held back. White space before a tag is dropped, so it is held back until
 * the next text is known.
 */
const maxSpace = 64;

export class MarkedParser implements OutputParser {
  private readonly reading: Reading;
  private readonly marks: Marks;
  /** First characters of the tags, for content and for reasoning. */
  private readonly starts: { readonly content: readonly string[]; readonly reasoning: readonly string[] };
  private syntax: Wait<void> | null = null;
  /** True if all text since the start of the output, or since the last tagged section, is white space. */
  private isFirst: boolean;
  /** True while white space is dropped, because it follows a tag. */
  private dropsSpace = false;

  constructor(reading: Reading, marks: Marks) {
    this.reading = reading;
    this.marks = marks;
    this.starts = { content: startsOf(marks.inContent), reasoning: startsOf(marks.inReasoning) };
    this.isFirst = reading.mode === "content";
  }

  get isThinking(): boolean {
    return this.syntax === null && this.reading.mode === "reasoning";
  }

  push(text: string): readonly OutputPart[] {
    const { reading } = this;
    if (text === "") return [];
    if (this.isPlain(text)) return [{ kind: reading.mode, text, at: reading.passOver(text.length) }];
    reading.push(text);
    this.run();
    return this.takeParts();
  }

  finish(isCut = false): readonly OutputPart[] {
    this.reading.isOver = true;
    if (isCut) this.cut();
    else {
      this.run();
      this.reading.giveText(this.reading.text.length);
    }
    return this.takeParts();
  }

  /**
   * Ends an output that the token limit has cut. The text that is still held back is white space, or the beginning of
   * a call or of a tag. Only white space is emitted.
   */
  private cut(): void {
    const { reading } = this;
    this.syntax?.next();
    if (reading.isInCall) reading.parts.push({ kind: "call-cut" });
    const isSpace = this.syntax === null && reading.text.slice(reading.position).trim() === "";
    if (isSpace) reading.giveText(reading.text.length);
    else reading.parts.push({ kind: "cut" });
  }

  private takeParts(): readonly OutputPart[] {
    const parts = this.reading.parts;
    if (parts.length > 0) this.reading.parts = [];
    return parts;
  }

  /**
   * True in the usual case: no text is held back, and this piece contains neither the start of a tag nor white space
   * that may precede a tag.
   */
  private isPlain(text: string): boolean {
    const { reading } = this;
    if (this.syntax !== null || this.isFirst || this.dropsSpace || reading.position < reading.text.length) return false;
    const starts = this.starts[reading.mode];
    for (const start of starts) if (text.includes(start)) return false;
    return starts.length === 0 || !isJsonSpace(text.charCodeAt(text.length - 1));
  }

  /** Processes as much of the text as possible. */
  private run(): void {
    const { reading } = this;
    for (;;) {
      if (this.syntax !== null) {
        if (this.syntax.next().done !== true) return;
        this.endSyntax();
      }
      if (this.dropsSpace && !this.dropSpace()) return;
      const found = this.isFirst ? this.findFirst() : this.find(reading.mode);
      if (found === null) return;
      this.syntax = found.read(reading);
    }
  }

  /**
   * Called when the `read` function of a tag has returned. If the function has begun a call without ending it,
   * reports a failed call. Otherwise, the text that the function read without accepting it as part of a call or a tag
   * is emitted as ordinary text, unless it is only white space.
   */
  private endSyntax(): void {
    const { reading } = this;
    this.syntax = null;
    const rest = reading.takeUnsettled();
    // White space that remains after a complete call is dropped, like white space after a tag.
    const isMark = !reading.isInCall && rest.trim() === "";
    this.dropsSpace = isMark;
    this.isFirst = isMark && reading.mode === "content";
    if (reading.isInCall) reading.parts.push({ kind: "call-failed", text: rest });
    else if (!isMark) reading.giveBack(rest);
    reading.isInCall = false;
  }

  /** Drops white space. Returns true if text remains after it. */
  private dropSpace(): boolean {
    const { reading } = this;
    const { text } = reading;
    while (reading.position < text.length && isJsonSpace(text.charCodeAt(reading.position))) reading.position++;
    reading.settle();
    if (reading.position === text.length) return false;
    this.dropsSpace = false;
    return true;
  }

  private findFirst(): Mark | null {
    const { text, position, isOver } = this.reading;
    let at = position;
    while (at < text.length && isJsonSpace(text.charCodeAt(at))) at++;
    if (at - position <= maxSpace) {
      const found = markAt(this.marks.first, text, at);
      if (found !== null) return this.take(found, at);
      if (!isOver && mayBecomeMark(this.marks.first, text, at)) return null;
    }
    this.isFirst = false;
    return this.find("content");
  }

  /** Finds the next tag and reads past it. Emits the text before the tag, or before a possible start of a tag. */
  private find(mode: "content" | "reasoning"): Mark | null {
    const { reading } = this;
    const { text } = reading;
    const marks = mode === "content" ? this.marks.inContent : this.marks.inReasoning;
    const starts = this.starts[mode];
    for (let at = reading.position; at < text.length; at++) {
      if (!starts.includes(text.charAt(at))) continue;
      const found = markAt(marks, text, at);
      if (found === null && (reading.isOver || !mayBecomeMark(marks, text, at))) continue;
      reading.giveText(this.spaceBefore(at));
      return found === null ? null : this.take(found, at);
    }
    reading.giveText(marks.length === 0 || reading.isOver ? text.length : this.spaceBefore(text.length));
    return null;
  }

  private take(mark: Mark, at: number): Mark {
    this.reading.position = mark.isKept === true ? at : at + mark.text.length;
    return mark;
  }

  private spaceBefore(end: number): number {
    const { text, position } = this.reading;
    const least = Math.max(position, end - maxSpace);
    let at = end;
    while (at > least && isJsonSpace(text.charCodeAt(at - 1))) at--;
    return at;
  }
}

function startsOf(marks: readonly Mark[]): readonly string[] {
  return [...new Set(marks.map(({ text }) => text.charAt(0)))];
}

function markAt(marks: readonly Mark[], text: string, at: number): Mark | null {
  return marks.find((mark) => text.startsWith(mark.text, at)) ?? null;
}

function mayBecomeMark(marks: readonly Mark[], text: string, at: number): boolean {
  return marks.some((mark) => text.length - at < mark.text.length && mark.text.startsWith(text.slice(at)));
}
