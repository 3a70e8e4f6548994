// Owns one choice of a request: turns its tokens into text events, holds back what might be the start of a stop string,
// and says when it has ended. Logprobs travel with the text they belong to.
import type { ChoiceLogprob, FinishReason } from "../../engines/chat.ts";
import { StopStrings } from "../../engines/parse/stop-strings.ts";
import { Detokenizer } from "../../engines/tokenizer/detokenizer.ts";
import type { Vocabulary } from "../../engines/tokenizer/vocabulary.ts";
import { rowFinishedLength, rowFinishedStop, rowHasToken } from "../messages.ts";
import type { ChoiceEvent } from "./best-of.ts";
import { alternatives, tokenLogprob } from "./token-logprobs.ts";

/** How a choice ended: the engine stopped it, or a stop string did and the engine has to be told. */
export type ChoiceEnd = "engine" | "stop-string" | null;

/** A logprob record that waits for its text. */
interface HeldLogprob {
  /** Characters of text before this token. */
  readonly start: number;
  readonly logprob: ChoiceLogprob;
}

export interface ChoiceOptions {
  readonly index: number;
  readonly vocabulary: Vocabulary;
  /** The prompt's last token. */
  readonly previousToken: number | null;
  readonly stop: readonly string[];
  /** False where the model was asked for logprobs only to rank choices. */
  readonly reportsLogprobs: boolean;
  /** Says why the whole text is no answer, if it is none. Asked of a text that ends of its own accord. */
  readonly check: ((text: string) => string | null) | null;
  readonly emit: (event: ChoiceEvent) => void;
}

export class Choice {
  tokenCount = 0;
  readonly #index: number;
  readonly #vocabulary: Vocabulary;
  readonly #detokenizer: Detokenizer;
  readonly #stop: StopStrings | null;
  readonly #reportsLogprobs: boolean;
  readonly #check: ChoiceOptions["check"];
  readonly #emit: (event: ChoiceEvent) => void;
  #logprobSum = 0;
  /** All the text, where there is a check. */
  #text = "";
  #held: HeldLogprob[] = [];
  #decodedLength = 0;
  #releasedLength = 0;

  constructor(options: ChoiceOptions) {
    this.#index = options.index;
    this.#vocabulary = options.vocabulary;
    this.#detokenizer = new Detokenizer(options.vocabulary, options.previousToken);
    this.#stop = options.stop.length > 0 ? new StopStrings(options.stop) : null;
    this.#reportsLogprobs = options.reportsLogprobs;
    this.#check = options.check;
    this.#emit = options.emit;
  }

  /** How likely its tokens are on average, those of a stop string too; the least where it has none. */
  get meanLogprob(): number {
    return this.tokenCount === 0 ? Number.NEGATIVE_INFINITY : this.#logprobSum / this.tokenCount;
  }

  /** Takes one row of a frame. Says whether, and by what, the choice has ended; its finish event is out by then. */
  take(token: number, flags: number, logprobs: Float32Array | null, at: number): ChoiceEnd {
    let text = "";
    if (flags & rowHasToken) {
      this.tokenCount++;
      if (logprobs) this.#noteLogprob(token, logprobs, at);
      text = this.#detokenizer.push(token);
    }
    const last = (flags & (rowFinishedStop | rowFinishedLength)) !== 0;
    if (last) text += this.#detokenizer.flush();
    this.#decodedLength += text.length;
    const stopped = this.#release(text, last);
    if (stopped) return this.#finish("stop", last ? "engine" : "stop-string");
    if (flags & rowFinishedStop) return this.#finish("stop", "engine");
    if (flags & rowFinishedLength) return this.#finish("length", "engine");
    return null;
  }

  /** Emits what is certain not to belong to a stop string. True when one has been met. */
  #release(text: string, last: boolean): boolean {
    if (!this.#stop) {
      this.#emitText(text, last);
      return false;
    }
    const { text: released, stopped } = this.#stop.push(text);
    const rest = last && stopped === null ? this.#stop.flush().text : "";
    this.#emitText(released + rest, last && stopped === null);
    return stopped !== null;
  }

  #emitText(text: string, all: boolean): void {
    this.#releasedLength += text.length;
    if (this.#check) this.#text += text;
    const ready = this.#held.filter(({ start }) => all || start < this.#releasedLength);
    if (text === "" && ready.length === 0) return;
    const event = { type: "text", choice: this.#index, text } as const;
    if (ready.length === 0) {
      this.#emit(event);
      return;
    }
    this.#held = this.#held.slice(ready.length);
    this.#emit({ ...event, logprobs: ready.map(({ logprob }) => logprob) });
  }

  #finish(reason: FinishReason, end: ChoiceEnd): ChoiceEnd {
    const refusal = reason === "stop" ? (this.#check?.(this.#text) ?? null) : null;
    if (refusal !== null) this.#emit({ type: "refusal", choice: this.#index, reason: refusal });
    this.#emit({ type: "finish", choice: this.#index, reason });
    return end;
  }

  #noteLogprob(token: number, record: Float32Array, at: number): void {
    const logprob = record[at] as number;
    this.#logprobSum += logprob;
    if (!this.#reportsLogprobs) return;
    const described = {
      ...tokenLogprob(this.#vocabulary, token, logprob),
      top: alternatives(this.#vocabulary, record, at),
    };
    this.#held.push({ start: this.#decodedLength, logprob: described });
  }
}
