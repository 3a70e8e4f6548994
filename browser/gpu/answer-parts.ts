// Answer parts: converts the chunks of web-llm to generation events. Separates thinking from the answer by its tags, and
// assigns numbers to tokens, because web-llm reports tokens in logprobs only as texts.
import type { ChatCompletionChunk } from "@mlc-ai/web-llm/lib/openai_api_protocols/chat_completion.js";
import type { GenerateEvent, Usage } from "../../engines/generation.ts";
import type { LogprobRecords } from "../../engines/logprobs.ts";
import { chooseFormat } from "../../engines/text/parse/choose-format.ts";
import type { OutputParser, OutputPart } from "../../engines/text/parse/tool-format.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";

type Chunk = ChatCompletionChunk;
type TokenLogprobs = NonNullable<NonNullable<Chunk["choices"][number]["logprobs"]>["content"]>;
type Finish = NonNullable<Chunk["choices"][number]["finish_reason"]>;

/** Chat template fragment that selects the parser for `<think>` tags, because web-llm passes thinking on as text. */
const thinkingTemplate = "<think></think>";

/** Token texts with numbers assigned on first use, because web-llm does not report token ids. */
export class NumberedTokens implements ShownTokens {
  readonly #numbers = new Map<string, number>();
  readonly #texts: string[] = [];
  readonly #encoder = new TextEncoder();

  number(text: string): number {
    const known = this.#numbers.get(text);
    if (known !== undefined) return known;
    this.#numbers.set(text, this.#texts.length);
    return this.#texts.push(text) - 1;
  }

  piece(token: number): Uint8Array {
    return this.#encoder.encode(this.tokenText(token));
  }

  tokenText(token: number): string {
    return this.#texts[token] ?? "";
  }
}

export class AnswerParts {
  readonly #tokens: NumberedTokens;
  readonly #take: (event: GenerateEvent) => void;
  readonly #parser: OutputParser = chooseFormat(thinkingTemplate).createParser({ tools: [], startsThinking: false });
  readonly #startedAt = Date.now();
  #firstAt = 0;
  #finish: Finish | null = null;
  #chunks = 0;
  #thinkingChunks = 0;
  #usage: Chunk["usage"];
  /** Logprobs of tokens whose text the parser has not returned yet. */
  readonly #held: TokenLogprobs = [];

  constructor(tokens: NumberedTokens, take: (event: GenerateEvent) => void) {
    this.#tokens = tokens;
    this.#take = take;
  }

  take({ choices, usage }: Chunk): void {
    if (usage !== undefined) this.#usage = usage;
    const [choice] = choices;
    if (choice === undefined) return;
    if (this.#chunks++ === 0) {
      this.#firstAt = Date.now();
      this.#take({ type: "begin", promptTokens: 0, cachedTokens: 0 });
    }
    const { delta, logprobs, finish_reason: reason } = choice;
    this.#emit(this.#parser.push(delta.content ?? ""), logprobs?.content ?? []);
    if (this.#parser.isThinking) this.#thinkingChunks++;
    if (reason !== null) this.#finish = reason;
  }

  /** Ends the answer and returns its usage. Throws if the answer was aborted. */
  end(): Usage {
    const isCut = this.#finish === "length";
    this.#emit(this.#parser.finish(isCut), []);
    if (this.#finish === "abort" || this.#finish === null) throw new Error("the answer was stopped");
    this.#take({ type: "finish", choice: 0, reason: isCut ? "length" : "stop", stopString: null });
    const endedAt = Date.now();
    const { prompt_tokens: promptTokens = 0, completion_tokens: decoded = 0 } = this.#usage ?? {};
    // web-llm counts only the decode steps after the prompt. The prompt's own step generates the first token.
    const completionTokens = decoded + 1;
    const startedAt = this.#startedAt;
    return {
      // web-llm counts only the prompt tokens that it computed, not those of earlier messages that are still in its KV cache.
      promptTokens,
      cachedTokens: 0,
      completionTokens,
      reasoningTokens: Math.min(this.#thinkingChunks, completionTokens),
      promptSeconds: (this.#firstAt - startedAt) / 1000,
      completionSeconds: (endedAt - this.#firstAt) / 1000,
      totalSeconds: (endedAt - startedAt) / 1000,
      timeline: { startedAt, queuedAt: startedAt, scheduledAt: startedAt, firstTokenAt: this.#firstAt, endedAt },
    };
  }

  #emit(parts: readonly OutputPart[], tokens: TokenLogprobs): void {
    this.#held.push(...tokens);
    for (const part of parts) {
      if (part.kind === "reasoning") {
        this.#held.length = 0;
        this.#take({ type: "reasoning", choice: 0, text: part.text });
      } else if (part.kind === "content") {
        const taken = this.#held.splice(0);
        const logprobs = taken.length === 0 ? null : this.#records(taken);
        this.#take({ type: "text", choice: 0, text: part.text, ...(logprobs !== null && { logprobs }) });
      }
    }
  }

  #records(tokens: TokenLogprobs): LogprobRecords {
    const floats = tokens.flatMap(({ token, logprob, top_logprobs: top }) => [
      this.#tokens.number(token),
      logprob,
      top.length,
      ...top.flatMap((one) => [this.#tokens.number(one.token), one.logprob]),
    ]);
    return { count: tokens.length, floats: Float32Array.from(floats) };
  }
}
