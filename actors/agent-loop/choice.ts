// Owns one choice of a request: turns its tokens into text events, holds back what might be the start of a stop string,
// and says when it has ended. Logprobs travel with the text they belong to.
import type { ChoiceLogprob, FinishReason, GenerateEvent, TokenLogprob } from "../../engines/chat.ts";
import { StopStrings } from "../../engines/parse/stop-strings.ts";
import { Detokenizer } from "../../engines/tokenizer/detokenizer.ts";
import type { Vocabulary } from "../../engines/tokenizer/vocabulary.ts";
import { rowFinishedLength, rowFinishedStop, rowHasToken } from "../messages.ts";

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
  readonly emit: (event: GenerateEvent) => void;
}

export class Choice {
  tokenCount = 0;
  readonly #index: number;
  readonly #vocabulary: Vocabulary;
  readonly #detokenizer: Detokenizer;
  readonly #stop: StopStrings | null;
  readonly #emit: (event: GenerateEvent) => void;
  #held: HeldLogprob[] = [];
  #decodedLength = 0;
  #releasedLength = 0;

  constructor(options: ChoiceOptions) {
    this.#index = options.index;
    this.#vocabulary = options.vocabulary;
    this.#detokenizer = new Detokenizer(options.vocabulary, options.previousToken);
    this.#stop = options.stop.length > 0 ? new StopStrings(options.stop) : null;
    this.#emit = options.emit;
  }

  /** Takes one row of a frame. Says whether, and by what, the choice has ended; its finish event is out by then. */
  take(token: number, flags: number, logprobs: Float32Array | null, at: number): ChoiceEnd {
    let text = "";
    if (flags & rowHasToken) {
      this.tokenCount++;
      if (logprobs) this.#hold(token, logprobs, at);
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
    this.#emit({ type: "finish", choice: this.#index, reason });
    return end;
  }

  #hold(token: number, record: Float32Array, at: number): void {
    const count = record[at + 1] as number;
    const top = Array.from({ length: count }, (_, i) =>
      this.#describe(record[at + 2 + 2 * i] as number, record[at + 3 + 2 * i] as number),
    );
    const logprob = { ...this.#describe(token, record[at] as number), top };
    this.#held.push({ start: this.#decodedLength, logprob });
  }

  #describe(token: number, logprob: number): TokenLogprob {
    const bytes = [...this.#vocabulary.piece(token)];
    return { token: this.#vocabulary.tokenText(token), bytes, logprob };
  }
}
