// Sequence: a prompt and its output, with the scheduling state that only the scheduler changes.
import { ServerError } from "../../../runtime/errors.ts";
import type { PromptSpan } from "../../batch.ts";
import type { LoadedModel } from "../../engine.ts";

/**
 * waiting: queued for a slot. running: holds a slot. preempted: has no slot because its client reads too slowly; its
 * tokens are kept, and its KV if possible. finished: holds no slot and no KV.
 */
export type SequenceState = "waiting" | "running" | "preempted" | "finished";

/**
 * Reasons for which a running sequence is not in a step. reader: its client reads too slowly. grammar: the next
 * token mask of its grammar is not ready. prefix: another sequence is computing the prefix that both share. Several
 * reasons can apply at the same time.
 */
export type Block = "reader" | "grammar" | "prefix";

/** State shared by all sequences of one request (its choices, or the inputs of an embedding request). */
export interface SequenceRequest {
  /** Whether any sequence of the request has had a slot. */
  hasBegun: boolean;
}

export interface SequenceOptions {
  /** Identifies the client. Clients take turns in the queue. */
  readonly client: string;
  /** Whether the queue timeout applies. True only for the first choice of a request; the others are queued after it. */
  readonly hasQueueLimit: boolean;
  readonly prompt: Int32Array;
  /** Maximum number of tokens to generate: at least 1, or 0 if the prompt is pooled. */
  readonly maxNewTokens: number;
  /** Whether the sequence continues after an end-of-generation token. */
  readonly ignoreEos: boolean;
  /** Further tokens that end the sequence, after at least minNewTokens tokens. Absent: none. */
  readonly stopTokens?: Int32Array;
  readonly minNewTokens?: number;
  /** Number of the adapter; 0 = the base model. */
  readonly adapter: number;
  /** Priority: sequences with lower numbers are served first. */
  readonly priority: number;
  /** Whether the hidden states of the prompt are pooled (embeddings). No token is generated then. */
  readonly isPooled: boolean;
  /** Whether the logits of every prompt token are needed. */
  readonly wantsPromptLogits: boolean;
  /** Parts of the prompt that are embeddings, in ascending order; absent: none. */
  readonly spans?: readonly PromptSpan[];
}

export class Sequence {
  /**
   * Prompt tokens, then output tokens. The KV cache holds tokens [0, computed); tokens [computed, total) have yet to be
   * fed.
   */
  readonly tokens: Int32Array;
  readonly promptLength: number;
  readonly client: string;
  readonly hasQueueLimit: boolean;
  readonly ignoreEos: boolean;
  readonly #stopTokens: Int32Array | null;
  readonly #minNewTokens: number;
  readonly adapter: number;
  readonly priority: number;
  readonly isPooled: boolean;
  readonly wantsPromptLogits: boolean;
  readonly spans: readonly PromptSpan[];
  state: SequenceState = "waiting";
  readonly blockedBy = new Set<Block>();
  /** The engine's slot while running; -1 in other states. */
  slot = -1;
  computed = 0;
  total: number;
  /**
   * True if the sequence was preempted because of a slow client and has had no slot since then. Requests of other
   * clients may then take its place in the queue.
   */
  wasPreempted = false;
  request: SequenceRequest = { hasBegun: false };
  /** Times at which the sequence was last queued and last paused, in ms of the scheduler's clock. */
  queuedMs = 0;
  pausedMs = 0;
  /** Rank in order of first admission, lower = earlier; 0 = not admitted yet. */
  order = 0;
  /** Number of the step in which the sequence was last fed. */
  step = 0;
  /** Number of prompt tokens whose KV was reused when the sequence first got a slot; -1 before that. */
  cachedTokens = -1;
  /**
   * While blockedBy contains "prefix": the running sequence that computes the first sharedPrefixTokens tokens of this
   * prompt.
   */
  sharedPrefixOwner: Sequence | null = null;
  sharedPrefixTokens = 0;
  /**
   * KV of the first swappedTokens tokens, swapped out while the sequence has no slot or waits for a shared prefix;
   * null: no KV was kept.
   */
  swapped: Uint8Array | null = null;
  swappedTokens = 0;
  /**
   * Drafted tokens (speculative decoding): the first draftCount entries are guesses of the tokens after `tokens[total -
   * 1]`. A drafter writes them before a step, and the step verifies them. Allocated when first needed.
   */
  draft: Int32Array | null = null;
  draftCount = 0;

  constructor(options: SequenceOptions) {
    this.promptLength = options.prompt.length;
    this.tokens = new Int32Array(this.promptLength + options.maxNewTokens);
    this.tokens.set(options.prompt);
    this.total = this.promptLength;
    this.client = options.client;
    this.hasQueueLimit = options.hasQueueLimit;
    this.ignoreEos = options.ignoreEos;
    this.#stopTokens = options.stopTokens ?? null;
    this.#minNewTokens = options.minNewTokens ?? 0;
    this.adapter = options.adapter;
    this.priority = options.priority;
    this.isPooled = options.isPooled;
    this.wantsPromptLogits = options.wantsPromptLogits;
    this.spans = options.spans ?? [];
  }

  /** Number of tokens that have yet to be fed: 1 while decoding. */
  get pending(): number {
    return this.total - this.computed;
  }

  /**
   * Whether `token` ends the sequence if it is the next token: it is a stop token, and enough tokens were generated.
   */
  stopsAt(token: number): boolean {
    if (this.#stopTokens === null || this.total - this.promptLength < this.#minNewTokens) return false;
    return this.#stopTokens.includes(token);
  }

  /**
   * Returns the token position at which the chunk of a step ends. This is `end`, unless `end` is inside a span (the
   * embeddings of an image) that must be computed in one step. In that case it is the start of the span, or the end of
   * the span if the chunk begins with it.
   */
  chunkEnd(end: number): number {
    const span = this.spans.find(({ from, to, attendsAhead }) => attendsAhead && from < end && end < to);
    if (span === undefined) return end;
    return span.from > this.computed ? span.from : span.to;
  }

  /** Whether the sequence is blocked because its client reads too slowly. */
  get isPaused(): boolean {
    return this.blockedBy.has("reader");
  }

  get isRunnable(): boolean {
    return this.state === "running" && this.blockedBy.size === 0;
  }
}

/**
 * Whether `one` is less important than `other`. The least important sequences are paused ones, then those with a higher
 * priority number, then those admitted later.
 */
export function mattersLess(one: Sequence, other: Sequence): boolean {
  if (one.isPaused !== other.isPaused) return one.isPaused;
  return one.priority === other.priority ? one.order > other.order : one.priority > other.priority;
}

/**
 * Validates a sequence. Throws `invalid_value`, `context_length_exceeded` or `unsupported` if this model can never run
 * it.
 */
export function checkSequence(
  { promptLength, tokens, adapter, isPooled }: Sequence,
  { capacity, capabilities }: Pick<LoadedModel, "capacity" | "capabilities">,
  maxBatchTokens: number,
): void {
  if (promptLength === 0) {
    throw new ServerError("invalid_value", "the prompt is empty; expected at least one token", { param: "prompt" });
  }
  if (tokens.length > capacity.sequenceTokens) {
    throw new ServerError(
      "context_length_exceeded",
      `prompt (${promptLength} tokens) and max_tokens (${tokens.length - promptLength}) ` +
        `exceed the ${capacity.sequenceTokens} tokens a sequence of this model may hold`,
    );
  }
  if (capabilities.wholeSequences && promptLength > maxBatchTokens) {
    throw new ServerError(
      "context_length_exceeded",
      `the input is ${promptLength} tokens; this model computes an input in one step of at most ${maxBatchTokens}: ` +
        "shorten it or raise max_num_batched_tokens",
    );
  }
  if (isPooled && capabilities.pooling === null) {
    throw new ServerError("unsupported", "this model has no pooled outputs (embeddings)", { param: "model" });
  }
  if (!isPooled && !capabilities.generates) {
    throw new ServerError("unsupported", "this model generates no text", { param: "model" });
  }
  if (adapter !== 0 && capabilities.adaptersPerStep === 0) {
    throw new ServerError("unsupported", "this model was loaded without adapters", { param: "adapter" });
  }
}
