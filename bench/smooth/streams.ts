// Streams that decode all the time: each client requests the next long response after the last one. Measures the pauses within
// responses.
import { type Answer, ask, isWhole } from "../serving/client/ask.ts";
import type { SizedPrompts } from "../serving/client/sized-prompts.ts";

const promptTokens = 48;

export interface StreamsOptions {
  readonly url: URL;
  readonly count: number;
  readonly maxTokens: number;
  readonly prompts: SizedPrompts;
}

export class DecodeStreams {
  readonly #options: StreamsOptions;
  readonly #gapsMs: number[] = [];
  readonly #hangUp = new AbortController();
  readonly #clients: readonly Promise<void>[];
  #failures: string[] = [];

  constructor(options: StreamsOptions) {
    this.#options = options;
    // The first responses differ in length, so that the clients do not all send their next request at the same time.
    this.#clients = Array.from({ length: options.count }, (_, i) =>
      this.#stream(Math.round((options.maxTokens * (i + 1)) / options.count)),
    );
  }

  /** Returns the pauses since the last call. */
  takeGaps(): number[] {
    return this.#gapsMs.splice(0);
  }

  /** Disconnects all clients. Returns the failures that occurred before. */
  async stop(): Promise<readonly string[]> {
    this.#hangUp.abort();
    await Promise.all(this.#clients);
    return this.#failures;
  }

  async #stream(firstTokens: number): Promise<void> {
    const { signal } = this.#hangUp;
    let maxTokens = firstTokens;
    while (!signal.aborted) {
      const answer = await this.#ask(maxTokens);
      maxTokens = this.#options.maxTokens;
      if (isWhole(answer) || signal.aborted) continue;
      this.#failures.push(answer.error ?? "");
      return;
    }
  }

  #ask(maxTokens: number): Promise<Answer> {
    const { url, prompts } = this.#options;
    const messages = [{ role: "user", content: prompts.take(promptTokens) }] as const;
    const question = { messages, maxTokens, fields: { ignore_eos: true } };
    return ask(url, question, { gapsMs: this.#gapsMs, signal: this.#hangUp.signal });
  }
}
