// Answer: collects the events of a generation into one complete result, from which non-streaming routes build their bodies.

import type { AgentEvent, ToolCallRecord } from "../../../actors/api/agent/agents.ts";
import type { FinishReason, GenerateEvent, ToolCall, Usage } from "../../../engines/generation.ts";
import { LogprobList, type LogprobRecords } from "../../../engines/logprobs.ts";
import type { ShownTokens } from "../../../engines/text/tokenizer/token-texts.ts";
import { fromErrorRecord, ServerError } from "../../../runtime/errors.ts";
import type { ProgressEvent } from "../agent/progress-event.ts";
import { Sources } from "../agent/web-results.ts";
import { type RunRecord, type WireFile, wireFile } from "../agent/wire.ts";
import type { AnswerLease } from "./answer-memory.ts";
import { PIECE_LENGTH } from "./json-pieces.ts";
import { TokenJson } from "./logprobs.ts";

/**
 * Part of a choice. For a call, `text` is the JSON of the arguments as the model wrote it, and `isCut` is set if the token
 * limit truncated it. For a `server_call` (a call that the server ran), `text` is the result.
 */
export type AnswerPart =
  | { readonly kind: "reasoning" | "text"; text: string }
  | { readonly kind: "call"; readonly id: string; readonly name: string; text: string; isCut: boolean }
  | { readonly kind: "server_call"; readonly progress: ProgressEvent; readonly text: string };

export interface Answer {
  readonly choices: readonly AnswerChoice[];
  /** Logprobs of the prompt tokens; empty if the request did not ask for them. */
  readonly prompt: LogprobList;
  /** Serialiser of the tokens; null if there are no logprobs. */
  readonly tokens: TokenJson | null;
  /** Whether the JSON text of the answer may be too long to be written at once. */
  readonly isLong: boolean;
  readonly usage: Usage;
  /** Version of the LoRA adapter; null without an adapter. */
  readonly adapterGeneration: string | null;
  /** Results of the agent run; null if the request did not use the agent loop. */
  readonly run: RunRecord | null;
  /** Pages returned by the web tools of the agent run. */
  readonly sources: Sources;
}

export interface CollectOptions {
  readonly choiceCount: number;
  /** Number of characters that the route adds before the text of each choice. */
  readonly prefixLength: number;
  /** Returns the token texts of the model; called only if there are logprobs. */
  readonly texts: () => ShownTokens;
  readonly lease: AnswerLease;
}

/** Collects a generation. Throws the error that ends the generation, or queue_full if its logprobs exceed the memory limit. */
export async function collectAnswer(
  events: AsyncIterable<readonly AgentEvent[]>,
  options: CollectOptions,
): Promise<Answer> {
  const collected = new CollectedAnswer(options);
  for await (const batch of events) {
    for (const event of batch) {
      if (event.type === "error") throw fromErrorRecord(event.error);
      if (event.type === "done") return collected.answer(event.usage);
      collected.take(event);
    }
  }
  throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
}

type ChoiceEvent = Extract<GenerateEvent, { readonly choice: number }>;

class CollectedAnswer {
  readonly #options: CollectOptions;
  readonly #choices: readonly AnswerChoice[];
  readonly #prompt = new LogprobList();
  #tokens: TokenJson | null = null;
  #adapterGeneration: string | null = null;
  #session: string | null = null;
  #isLimited = false;
  /** Records of completed calls. `index`: position of the call in its round. */
  readonly #calls: { readonly index: number; readonly record: ToolCallRecord }[] = [];
  readonly #files: WireFile[] = [];
  readonly #sources = new Sources();
  /** Number of characters of the call records and file objects. */
  #recordLength = 0;

  constructor(options: CollectOptions) {
    this.#options = options;
    this.#choices = Array.from({ length: options.choiceCount }, () => new AnswerChoice());
  }

  take(event: Exclude<AgentEvent, { readonly type: "done" | "error" }>): void {
    if ("logprobs" in event) this.#hold(event.logprobs);
    if (event.type === "session") this.#session = event.id;
    else if (event.type === "tool_progress") this.#ran(event);
    else if (event.type === "file") this.#produced(wireFile(event.file, event.inline));
    else if (event.type === "rounds_reached") this.#isLimited = true;
    else if (event.type === "approval") return;
    else if (event.type === "prompt") this.#prompt.add(event.logprobs);
    else if (event.type === "begin") this.#adapterGeneration = event.adapterGeneration ?? null;
    else this.#choices[event.choice]?.take(event);
  }

  answer(usage: Usage): Answer {
    const { prefixLength } = this.#options;
    const length = this.#choices.reduce((sum, choice) => sum + prefixLength + choice.length, this.#recordLength);
    return {
      choices: this.#choices,
      prompt: this.#prompt,
      tokens: this.#tokens,
      isLong: this.#tokens !== null || length > PIECE_LENGTH,
      usage,
      adapterGeneration: this.#adapterGeneration,
      run: this.#run,
      sources: this.#sources,
    };
  }

  get #run(): RunRecord | null {
    if (this.#session === null) return null;
    const ordered = this.#calls.sort((one, other) => one.record.round - other.record.round || one.index - other.index);
    const calls = ordered.map(({ record }) => record);
    return { sessionId: this.#session, calls, files: this.#files, isLimited: this.#isLimited };
  }

  #ran(event: ProgressEvent): void {
    const { record } = event;
    if (record === null) return;
    this.#choices[0]?.ran(event, record);
    this.#sources.take(event);
    this.#calls.push({ index: event.index, record });
    const images = record.result_images_base64 ?? [];
    const length = [record.arguments, record.result_content, ...images].reduce((sum, text) => sum + text.length, 0);
    this.#recordLength += length;
    this.#options.lease.add(length);
  }

  #produced(file: WireFile): void {
    this.#files.push(file);
    const length = (file.text ?? file.data_base64 ?? "").length;
    this.#recordLength += length;
    this.#options.lease.add(length);
  }

  #hold({ floats }: LogprobRecords): void {
    this.#tokens ??= TokenJson.of(this.#options.texts());
    this.#options.lease.add(floats.byteLength);
  }
}

export class AnswerChoice {
  /** Parts in the order of generation. The text of a call that failed to parse is a text part. */
  readonly parts: AnswerPart[] = [];
  readonly logprobs = new LogprobList();
  finishReason: FinishReason = "stop";
  /** Stop string that ended the text; null: none. */
  stopString: string | null = null;
  /** Why the text violates the request's output format; null if it is valid. */
  refusal: string | null = null;

  get text(): string {
    return this.#textOf("text");
  }

  get reasoning(): string {
    return this.#textOf("reasoning");
  }

  get toolCalls(): readonly ToolCall[] {
    return this.parts.flatMap((part) =>
      part.kind === "call" ? [{ id: part.id, name: part.name, arguments: part.text }] : [],
    );
  }

  /** Number of characters of text, reasoning and tool calls. */
  get length(): number {
    return this.parts.reduce((sum, { text }) => sum + text.length, 0);
  }

  /** Adds a completed server call. Calls of one round may complete in any order; their parts stay in the order of the calls. */
  ran(progress: ProgressEvent, record: ToolCallRecord): void {
    const isLater = (part: AnswerPart): boolean =>
      part.kind === "server_call" && part.progress.round === progress.round && part.progress.index > progress.index;
    const at = this.parts.findIndex(isLater);
    const part = { kind: "server_call", progress, text: record.result_content } as const;
    this.parts.splice(at < 0 ? this.parts.length : at, 0, part);
  }

  take(event: ChoiceEvent): void {
    switch (event.type) {
      case "reasoning":
        this.#add("reasoning", event.text);
        break;
      case "text":
        this.#add("text", event.text);
        if (event.logprobs !== undefined) this.logprobs.add(event.logprobs);
        break;
      case "tool_call":
        this.parts.push({ kind: "call", id: event.id, name: event.name, text: "", isCut: false });
        break;
      case "tool_arguments":
        this.#add("call", event.text);
        break;
      case "tool_call_cut": {
        const cut = this.parts.at(-1);
        if (cut?.kind === "call") cut.isCut = true;
        break;
      }
      case "tool_call_end":
        break;
      case "tool_call_failed":
        this.parts.pop();
        this.#add("text", event.text);
        break;
      case "refusal":
        this.refusal = event.reason;
        break;
      case "finish":
        this.finishReason = event.reason;
        this.stopString = event.stopString;
        break;
      default:
        event satisfies never;
    }
  }

  /**
   * Appends text to the last part if that part has this kind, otherwise adds a new part. The text is empty if an event has only
   * logprobs.
   */
  #add(kind: Exclude<AnswerPart["kind"], "server_call">, text: string): void {
    const last = this.parts.at(-1);
    if (last?.kind === kind) last.text += text;
    else if (kind !== "call" && text !== "") this.parts.push({ kind, text });
  }

  #textOf(kind: AnswerPart["kind"]): string {
    return this.parts.map((part) => (part.kind === kind ? part.text : "")).join("");
  }
}
