// Owns one choice of a request: turns its tokens into text, holds back what might be the start of a stop string, has the rest
// read as content, reasoning and calls, and says when it has ended.
import type { FinishReason } from "../../engines/chat.ts";
import { StopStrings } from "../../engines/parse/stop-strings.ts";
import { Detokenizer } from "../../engines/tokenizer/detokenizer.ts";
import type { Vocabulary } from "../../engines/tokenizer/vocabulary.ts";
import { rowFinishedLength, rowFinishedStop, rowHasToken } from "../messages.ts";
import { AnswerReader } from "./answer-reader.ts";
import type { ChoiceEvent } from "./event-backlog.ts";
import type { AnswerPlan } from "./jobs.ts";

/** How a choice ended: the engine stopped it, or its text did and the engine has to be told. */
export type ChoiceEnd = "engine" | "text" | null;

export interface ChoiceOptions {
  readonly index: number;
  readonly vocabulary: Vocabulary;
  /** The prompt's last token. */
  readonly previousToken: number | null;
  readonly stop: readonly string[];
  /** False where the model was asked for logprobs only to rank choices. */
  readonly reportsLogprobs: boolean;
  /** How its text is to be read. */
  readonly answer: AnswerPlan;
  readonly emit: (event: ChoiceEvent) => void;
}

export class Choice {
  tokenCount = 0;
  /** Of those, the ones of its thinking. */
  reasoningTokenCount = 0;
  readonly #options: ChoiceOptions;
  readonly #detokenizer: Detokenizer;
  readonly #stop: StopStrings | null;
  readonly #reader: AnswerReader;
  #logprobSum = 0;
  /** All the content, where there is a check. */
  #content = "";
  #decodedLength = 0;

  constructor(options: ChoiceOptions) {
    const { vocabulary, previousToken, answer } = options;
    this.#options = options;
    this.#detokenizer = new Detokenizer(vocabulary, previousToken, answer.shownTokens);
    this.#stop = options.stop.length > 0 ? new StopStrings(options.stop) : null;
    this.#reader = new AnswerReader({
      choice: options.index,
      parser: answer.createParser?.() ?? null,
      endsWithCall: answer.endsWithCall,
      checkCall: answer.checkCall,
      writeCall: answer.writeCall,
      emit: (event) => this.#emit(event),
    });
  }

  /** How likely its tokens are on average, those of a stop string too; the least where it has none. */
  get meanLogprob(): number {
    return this.tokenCount === 0 ? Number.NEGATIVE_INFINITY : this.#logprobSum / this.tokenCount;
  }

  /** Takes one row of a frame. Says whether, and by what, the choice has ended; its finish event is out by then. */
  take(token: number, flags: number, logprobs: Float32Array | null, at: number): ChoiceEnd {
    const hasToken = (flags & rowHasToken) !== 0;
    const isLast = (flags & (rowFinishedStop | rowFinishedLength)) !== 0;
    let text = hasToken ? this.#detokenizer.push(token) : "";
    if (isLast) text += this.#detokenizer.flush();
    const start = this.#decodedLength;
    this.#decodedLength += text.length;
    if (hasToken && logprobs) this.#noteLogprob(token, logprobs, at, start);
    const wasThinking = this.#reader.isThinking;
    const stopString = this.#read(text, isLast);
    if (hasToken) {
      this.tokenCount++;
      // The tokens of the marks around it, too.
      if (wasThinking || this.#reader.isThinking) this.reasoningTokenCount++;
    }
    if (stopString !== null) return this.#finish("stop", stopString, isLast ? "engine" : "text");
    if (flags & rowFinishedStop) return this.#finish("stop", null, "engine");
    if (flags & rowFinishedLength) return this.#finish("length", null, "engine");
    // Where one call is all there may be, what follows it is of no use.
    if (this.#options.answer.endsWithCall && this.#reader.wholeCalls > 0) return this.#finish("stop", null, "text");
    return null;
  }

  /** Reads what is certain not to belong to a stop string. Returns the one that has been met. */
  #read(text: string, isLast: boolean): string | null {
    if (this.#stop === null) {
      this.#reader.read(text);
      return null;
    }
    const { text: released, stopped } = this.#stop.push(text);
    this.#reader.read(isLast && stopped === null ? released + this.#stop.flush().text : released);
    return stopped;
  }

  #emit(event: ChoiceEvent): void {
    if (this.#options.answer.check !== null && event.type === "text") this.#content += event.text;
    this.#options.emit(event);
  }

  #finish(reason: "stop" | "length", stopString: string | null, end: ChoiceEnd): ChoiceEnd {
    const { index: choice, answer } = this.#options;
    this.#reader.finish();
    // The tokens of a stop string are no part of the answer.
    if (stopString === null) this.#reader.finishLogprobs();
    const calls = this.#reader.wholeCalls > 0;
    // A call is an answer of its own: nothing else was demanded then.
    const refusal = reason === "stop" && !calls ? (answer.check?.(this.#content) ?? null) : null;
    if (refusal !== null) this.#emit({ type: "refusal", choice, reason: refusal });
    const how: FinishReason = calls && reason === "stop" ? "tool_calls" : reason;
    this.#emit({ type: "finish", choice, reason: how, stopString });
    return end;
  }

  #noteLogprob(token: number, record: Float32Array, at: number, start: number): void {
    this.#logprobSum += record[at] as number;
    if (this.#options.reportsLogprobs) this.#reader.note(start, this.#decodedLength, token, record, at);
  }
}
