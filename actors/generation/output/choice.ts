// Choice: one choice of a request. It converts tokens to text, holds back text that may be the start of a stop string, passes the
// other text to the output assembler, and decides when the choice has ended.
import type { FinishReason } from "../../../engines/generation.ts";
import { StopStrings } from "../../../engines/text/parse/stop-strings.ts";
import { Detokenizer } from "../../../engines/text/tokenizer/detokenizer.ts";
import type { TokenTexts } from "../../../engines/text/tokenizer/token-texts.ts";
import { rowFinishedLength, rowFinishedStop, rowHasToken } from "../../messages.ts";
import type { ChoiceEvent } from "./event-buffer.ts";
import { OutputAssembler } from "./output-assembler.ts";
import type { OutputPlan } from "./output-plan.ts";

/** Returns why a text does not match the request; null = it matches. Never rejects. `call`: name of the called tool; null for content. */
export type CheckOutput = (text: string, call: string | null) => Promise<string | null>;

export interface ChoiceOptions {
  readonly index: number;
  readonly texts: TokenTexts;
  /** Last token of the prompt; null for an empty prompt. */
  readonly previousToken: number | null;
  readonly stop: readonly string[];
  /** Number of leading tokens whose text is not searched for stop strings. */
  readonly minTokens: number;
  /** Whether the output limit is 0: the first token, which the model computes together with the prompt, is no part of the output. */
  readonly isEmpty: boolean;
  /** False if the logprobs are only used to rank choices and are not sent to the client. */
  readonly reportsLogprobs: boolean;
  /** Defines how the text is parsed and checked. */
  readonly answer: OutputPlan;
  readonly check: CheckOutput;
  readonly emit: (event: ChoiceEvent) => void;
  /** Called when a stop string or tool call has ended the choice, so that the model stops the sequence. */
  readonly onStop: () => void;
  /** Called after the finish event has been emitted. */
  readonly onEnd: () => void;
}

type Reason = "stop" | "length";

export class Choice {
  tokenCount = 0;
  /** Number of reasoning tokens, included in `tokenCount`. */
  reasoningTokenCount = 0;
  readonly #options: ChoiceOptions;
  readonly #detokenizer: Detokenizer;
  readonly #stop: StopStrings | null;
  readonly #reader: OutputAssembler;
  /** Whether the choice has ended and ignores further tokens. */
  #isOver = false;
  /** Called when all tool calls have been checked; null = nothing waits for the checks. */
  #onSettled: (() => void) | null = null;
  #logprobSum = 0;
  /** All content so far; kept only if the content is checked at the end. */
  #content = "";
  #decodedLength = 0;

  constructor(options: ChoiceOptions) {
    const { texts, previousToken, answer, check } = options;
    this.#options = options;
    this.#detokenizer = new Detokenizer(texts, previousToken, answer.shownTokens);
    this.#stop = options.stop.length > 0 ? new StopStrings(options.stop) : null;
    this.#reader = new OutputAssembler({
      choice: options.index,
      parser: answer.createParser?.() ?? null,
      endsWithCall: answer.endsWithCall,
      checkCall: answer.checks?.calls ? (name, args) => check(args, name) : null,
      writeCall: answer.writeCall,
      emit: (event) => this.#emit(event),
      onSettled: () => this.#settled(),
    });
  }

  /** Mean logprob of all tokens, including those of a stop string; minus infinity if there are no tokens. */
  get meanLogprob(): number {
    return this.tokenCount === 0 ? Number.NEGATIVE_INFINITY : this.#logprobSum / this.tokenCount;
  }

  /** Processes one row of a token frame: a token, or the end of the sequence without a token. */
  take(token: number, flags: number, logprobs: Float32Array | null, at: number): void {
    if (this.#isOver) return;
    const hasToken = (flags & rowHasToken) !== 0;
    const isLast = (flags & (rowFinishedStop | rowFinishedLength)) !== 0;
    if (this.#options.isEmpty) {
      if (!isLast) this.#options.onStop();
      this.#end("length", null);
      return;
    }
    let text = hasToken ? this.#detokenizer.push(token) : "";
    if (isLast) text += this.#detokenizer.flush();
    const start = this.#decodedLength;
    this.#decodedLength += text.length;
    if (hasToken && logprobs) this.#noteLogprob(token, logprobs, at, start);
    const wasThinking = this.#reader.isThinking;
    const stopString = this.#read(text, isLast);
    if (hasToken) {
      this.tokenCount++;
      // The tokens of the delimiters around the reasoning count as reasoning too.
      if (wasThinking || this.#reader.isThinking) this.reasoningTokenCount++;
    }
    if (stopString !== null && !isLast) this.#options.onStop();
    if (stopString !== null || flags & rowFinishedStop) this.#end("stop", stopString);
    else if (flags & rowFinishedLength) this.#end("length", null);
    else this.#endWithCall();
  }

  /** Ends the choice after its first tool call, if the request allows only one. */
  #endWithCall(): void {
    if (this.#isOver || !this.#options.answer.endsWithCall || this.#reader.wholeCalls === 0) return;
    this.#options.onStop();
    this.#end("stop", null);
  }

  #settled(): void {
    const next = this.#onSettled;
    this.#onSettled = null;
    if (next === null) this.#endWithCall();
    else next();
  }

  /** Emits the text that cannot be part of a stop string. Returns the stop string if one is found, else null. */
  #read(text: string, isLast: boolean): string | null {
    if (this.#stop === null || this.tokenCount < this.#options.minTokens) {
      this.#reader.read(text);
      return null;
    }
    const { text: released, stopped } = this.#stop.push(text);
    this.#reader.read(isLast && stopped === null ? released + this.#stop.flush().text : released);
    return stopped;
  }

  #emit(event: ChoiceEvent): void {
    if (this.#options.answer.checks?.content && event.type === "text") this.#content += event.text;
    this.#options.emit(event);
  }

  #end(reason: Reason, stopString: string | null): void {
    this.#isOver = true;
    this.#reader.finish(reason === "length");
    const conclude = () => this.#conclude(reason, stopString);
    if (this.#reader.isChecking) this.#onSettled = conclude;
    else conclude();
  }

  #conclude(reason: Reason, stopString: string | null): void {
    const { answer, check } = this.#options;
    // The tokens of a stop string are not part of the output, so their logprobs are dropped.
    if (stopString === null) this.#reader.finishLogprobs();
    // Constraints on the content do not apply if the output is a tool call.
    const isChecked = answer.checks?.content === true && reason === "stop" && this.#reader.wholeCalls === 0;
    if (!isChecked) this.#finish(reason, stopString, null);
    else void check(this.#content, null).then((refusal) => this.#finish(reason, stopString, refusal));
  }

  #finish(reason: Reason, stopString: string | null, refusal: string | null): void {
    const { index: choice, onEnd } = this.#options;
    if (refusal !== null) this.#emit({ type: "refusal", choice, reason: refusal });
    const how: FinishReason = this.#reader.wholeCalls > 0 && reason === "stop" ? "tool_calls" : reason;
    this.#emit({ type: "finish", choice, reason: how, stopString });
    onEnd();
  }

  #noteLogprob(token: number, record: Float32Array, at: number, start: number): void {
    this.#logprobSum += record[at] as number;
    if (this.#options.reportsLogprobs) this.#reader.note(start, this.#decodedLength, token, record, at);
  }
}
