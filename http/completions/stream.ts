// Completion stream: encodes generation events as the server-sent chunks of a text completion.
import type { GenerateEvent, Usage } from "../../engines/generation.ts";
import type { LogprobRecords } from "../../engines/logprobs.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";
import { errorBody } from "../errors.ts";
import { generationFields } from "../shared/answer/adapter-generation.ts";
import { gathered } from "../shared/answer/json-pieces.ts";
import { hasLongLogprobs, jsonLength } from "../shared/answer/logprobs.ts";
import { wireFinishReason, wireUsage } from "../shared/answer/usage.ts";
import type { StreamCodec } from "../sse.ts";
import { type ShownOfTokens, StreamedLogprobs, tokenIds } from "./logprobs.ts";
import type { CompletionHead } from "./response.ts";

const DONE = "data: [DONE]\n\n";

export interface CompletionStreamOptions {
  readonly promptCount: number;
  /** Number of choices of each prompt. */
  readonly choiceCount: number;
  /**
   * Returns one text per prompt: the echoed prompt that precedes each of its choices. The list is empty without `echo`. Called
   * when the model is loaded.
   */
  readonly prefixes: () => readonly string[];
  /** Whether `usage` is sent in an additional chunk without choices. If false, the last chunk with a finish_reason carries it. */
  readonly includesUsage: boolean;
  readonly shows: ShownOfTokens;
  /** Returns the token texts of the model; called only if there are logprobs. */
  readonly texts: () => ShownTokens;
}

export class CompletionStream implements StreamCodec<GenerateEvent> {
  readonly #completion: CompletionHead;
  readonly #options: CompletionStreamOptions;
  #prefixes: readonly string[] | null = null;
  /** Logprobs of the echoed prompt; null if there are none. */
  #prompt: LogprobRecords | null = null;
  /** Serialisers of the logprobs (null: no logprobs), by choice index. A choice is added when its first chunk is encoded. */
  readonly #begun = new Map<number, StreamedLogprobs | null>();
  #head: string;
  #unfinished: number;
  /** Final chunk of the last choice. Its JSON is not closed yet, because the usage is added to it. */
  #lastChunk = "";
  #isEnded = false;

  constructor(completion: CompletionHead, options: CompletionStreamOptions) {
    this.#completion = completion;
    this.#options = options;
    this.#unfinished = options.promptCount * options.choiceCount;
    this.#head = this.#headWith(null);
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  encode(events: readonly GenerateEvent[]): string | Iterable<string> {
    const isLong = hasLongLogprobs(events) || (this.#prompt !== null && jsonLength(this.#prompt) > 0);
    return isLong ? gathered(this.#fragments(events)) : [...this.#fragments(events)].join("");
  }

  fail(error: ErrorRecord): string {
    this.#isEnded = true;
    return `${this.#closeLastChunk("")}data: ${errorBody(error)}\n\n${DONE}`;
  }

  *#fragments(events: readonly GenerateEvent[]): Generator<string> {
    for (const event of events) {
      switch (event.type) {
        case "begin":
          this.#head = this.#headWith(event.adapterGeneration ?? null);
          break;
        case "prompt":
          this.#prompt = event.logprobs;
          break;
        case "text":
          yield* this.#begin(event.choice, this.#options.shows.logprobs && event.logprobs !== undefined);
          yield* this.#chunk(event.choice, event.text, event.logprobs ?? null, false);
          break;
        case "refusal":
          yield* this.#begin(event.choice, false);
          yield `${this.#open(event.choice, "")},"logprobs":null,"finish_reason":null,"refusal":${JSON.stringify(event.reason)}}]}\n\n`;
          break;
        case "finish":
          yield* this.#begin(event.choice, false);
          yield this.#finish(
            `${this.#open(event.choice, "")},"logprobs":null${this.#options.shows.ids ? ',"token_ids":[]' : ""},"finish_reason":"${wireFinishReason(event.reason)}"}]`,
          );
          break;
        case "done":
          yield this.#done(event.usage);
          break;
        case "error":
          yield this.fail(event.error);
          break;
        default: // Without a chat template, a generation has neither reasoning nor tool calls.
      }
    }
  }

  /** Yields the chunk with the echoed prompt. Called before the first chunk of a choice. */
  *#begin(choice: number, hasLogprobs: boolean): Generator<string> {
    if (this.#begun.has(choice)) return;
    this.#prefixes ??= this.#options.prefixes();
    const prefix = this.#prefixes[Math.floor(choice / this.#options.choiceCount)] ?? "";
    const prompt = this.#prompt;
    const needsLogprobs = hasLogprobs || prompt !== null;
    this.#begun.set(choice, needsLogprobs ? new StreamedLogprobs(this.#options.texts(), prefix, prompt) : null);
    if (prefix !== "" || prompt !== null) yield* this.#chunk(choice, prefix, prompt, true);
  }

  *#chunk(choice: number, text: string, records: LogprobRecords | null, isPrompt: boolean): Generator<string> {
    const { shows } = this.#options;
    const logprobs = shows.logprobs ? this.#begun.get(choice) : null;
    yield `${this.#open(choice, text)},"logprobs":`;
    if (records === null || logprobs === null || logprobs === undefined) yield "null";
    else yield* logprobs.fragments(records, isPrompt);
    if (shows.ids) yield `,"token_ids":[${records === null || isPrompt ? "" : tokenIds([records.floats]).join(",")}]`;
    yield ',"finish_reason":null}]}\n\n';
  }

  #open(choice: number, text: string): string {
    return `${this.#head}{"index":${choice},"text":${JSON.stringify(text)}`;
  }

  #finish(chunk: string): string {
    this.#unfinished--;
    if (this.#unfinished > 0) return `${chunk}}\n\n`;
    this.#lastChunk = chunk;
    return "";
  }

  #done(usage: Usage): string {
    this.#isEnded = true;
    const wire = `,"usage":${JSON.stringify(wireUsage(usage))}`;
    if (!this.#options.includesUsage && this.#lastChunk !== "") return this.#closeLastChunk(wire) + DONE;
    // The usage chunk has a `usage` object, so the constant `"usage":null` of the other chunks is removed.
    const head = this.#head.replace(',"usage":null,"choices"', ',"choices"');
    return `${this.#closeLastChunk("")}${head}]${wire}}\n\n${DONE}`;
  }

  #closeLastChunk(extra: string): string {
    if (this.#lastChunk === "") return "";
    const chunk = `${this.#lastChunk}${extra}}\n\n`;
    this.#lastChunk = "";
    return chunk;
  }

  /** Returns the constant text that begins each chunk, up to its choices. */
  #headWith(adapterGeneration: string | null): string {
    const { id, created, model } = this.#completion;
    const fields = JSON.stringify({
      id,
      object: "text_completion",
      created,
      model,
      system_fingerprint: "local",
      ...generationFields(adapterGeneration),
      ...(this.#options.includesUsage ? { usage: null } : {}),
    });
    return `data: ${fields.slice(0, -1)},"choices":[`;
  }
}
