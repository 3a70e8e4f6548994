// Sequence: a prompt and its output as the scheduler sees them, with the state that only the scheduler changes.
import { ServerError } from "../../../runtime/errors.ts";
import type { LoadedModel } from "../../engine.ts";

/**
 * waiting: queued for a slot. running: holds a slot. preempted: its reader is behind and it has no slot, only its tokens.
 * finished: holds nothing.
 */
export type SequenceState = "waiting" | "running" | "preempted" | "finished";

/**
 * Why a sequence sits out: its reader is behind, its grammar's next mask is not ready, or another sequence is computing the
 * prefix they share. Several can hold at once.
 */
export type Block = "reader" | "grammar" | "prefix";

/** A request, shared by its sequences: its choices, or the inputs of an embedding. */
export interface SequenceRequest {
  /** A sequence of the request has had a slot. */
  hasBegun: boolean;
}

export interface SequenceOptions {
  /** Clients take turns. */
  readonly client: string;
  /** The queue timeout applies. False for all but the first choice of a request, which come after it. */
  readonly hasQueueLimit: boolean;
  readonly prompt: Int32Array;
  /** Most tokens to generate: >= 1, or 0 if the prompt is pooled. */
  readonly maxNewTokens: number;
  /** Continue after an end-of-generation token. */
  readonly ignoreEos: boolean;
  /** 0 = the base model. */
  readonly adapter: number;
  /** Lower numbers are served sooner. */
  readonly priority: number;
  /** No token is generated: the hidden states of the prompt are pooled. */
  readonly isPooled: boolean;
  /** The logits of every prompt token are wanted. */
  readonly wantsPromptLogits: boolean;
}

export class Sequence {
  /** Prompt, then output. [0, computed) is in the KV cache, [computed, total) is still to be fed. */
  readonly tokens: Int32Array;
  readonly promptLength: number;
  readonly client: string;
  readonly hasQueueLimit: boolean;
  readonly ignoreEos: boolean;
  readonly adapter: number;
  readonly priority: number;
  readonly isPooled: boolean;
  readonly wantsPromptLogits: boolean;
  state: SequenceState = "waiting";
  readonly blockedBy = new Set<Block>();
  /** The engine's slot while running, else -1. */
  slot = -1;
  computed = 0;
  total: number;
  /** It was preempted for its reader and has had no slot since: another client may take its place in the queue. */
  wasPreempted = false;
  request: SequenceRequest = { hasBegun: false };
  /** When it was last queued and last paused, by the scheduler's clock. */
  queuedMs = 0;
  pausedMs = 0;
  /** Rank among all sequences that ever got a slot; lower = earlier, 0 = none yet. */
  order = 0;
  /** The step it was last fed in. */
  step = 0;
  /** Prompt tokens whose KV was found when it first got a slot; -1 before that. */
  cachedTokens = -1;
  /** The running sequence that computes the first sharedPrefixTokens tokens of this prompt, while blockedBy has "prefix". */
  sharedPrefixOwner: Sequence | null = null;
  sharedPrefixTokens = 0;
  /** KV of the first swappedTokens tokens while it has no slot, if it was kept. */
  swapped: Uint8Array | null = null;
  swappedTokens = 0;
  /**
   * The first draftCount tokens may follow `tokens[total - 1]`: written by a drafter before a step, verified and cleared by
   * that step. Allocated by the first drafter.
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
    this.adapter = options.adapter;
    this.priority = options.priority;
    this.isPooled = options.isPooled;
    this.wantsPromptLogits = options.wantsPromptLogits;
  }

  /** Tokens the engine has yet to see. 1 while decoding. */
  get pending(): number {
    return this.total - this.computed;
  }

  /** The reader is behind. */
  get isPaused(): boolean {
    return this.blockedBy.has("reader");
  }

  get isRunnable(): boolean {
    return this.state === "running" && this.blockedBy.size === 0;
  }
}

/** Sequences whose readers are behind matter least, then higher priority numbers, then later ones. */
export function mattersLess(one: Sequence, other: Sequence): boolean {
  if (one.isPaused !== other.isPaused) return one.isPaused;
  return one.priority === other.priority ? one.order > other.order : one.priority > other.priority;
}

/** Throws `invalid_value`, `context_length_exceeded` or `unsupported` for a sequence that this model can never run. */
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
