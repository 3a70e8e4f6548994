// Owns the state of one sequence as the scheduler sees it: its tokens and how many of them the engine has computed.
// Only the scheduler changes it.

/**
 * waiting: no slot, queued or put back into the queue. running: holds a slot. parked: its reader is behind, and it has no
 * slot or has had to give it up; it keeps its tokens only. finished: holds nothing.
 */
export type SequenceState = "waiting" | "running" | "parked" | "finished";

/** A request as its sequences share it: its choices, or the inputs of an embedding. */
export interface SequenceRequest {
  /** One of them has had a slot. */
  hasBegun: boolean;
}

export interface SequenceOptions {
  /** Whose it is: clients take turns. */
  readonly client: string;
  /** The limit of the time in the queue is for it. False for all but the first choice of a request, which come after it. */
  readonly hasQueueLimit: boolean;
  readonly prompt: Int32Array;
  /** Most tokens to generate: >= 1, or 0 where its prompt is pooled. */
  readonly maxNewTokens: number;
  /** Go on after an end-of-generation token. */
  readonly ignoreEos: boolean;
  /** 0 = the base model. */
  readonly adapter: number;
  /** The lower, the sooner it is served. */
  readonly priority: number;
  /** No token is generated: the hidden states of the prompt are pooled. */
  readonly isPooled: boolean;
  /** The logits of every token of the prompt are wanted. */
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
  /** The engine's slot while running, else -1. */
  slot = -1;
  computed = 0;
  total: number;
  /** What it may say next is not known yet: it sits out. */
  isHeld = false;
  /** Its reader is behind: it is not scheduled, and loses its slot to a sequence that waits for one. */
  paused = false;
  /** It has been parked and has had no slot since: its place in the queue may go to another client. */
  wasParked = false;
  request: SequenceRequest = { hasBegun: false };
  /** When it was queued last and when it was paused last, as the scheduler was told the time. */
  queuedMs = 0;
  pausedMs = 0;
  /** Its place among all that ever got a slot: the lower, the longer ago. 0 = none yet. */
  order = 0;
  /** The step it was last fed in. */
  step = 0;
  /** Tokens of the prompt whose KV was there when it first got a slot; -1 = it has none yet. */
  cachedTokens = -1;
  /** Whose prompt begins with the same sourceTokens tokens and is being computed: it waits for them. */
  sharedPrefixOwner: Sequence | null = null;
  sharedPrefixTokens = 0;
  /** KV of the first swappedTokens tokens while it has no slot, if it was kept. */
  swapped: Uint8Array | null = null;
  swappedTokens = 0;
  /**
   * Tokens that may follow `tokens[total - 1]`, draftCount of them: written by a drafter before a step, verified and
   * cleared by that step. Allocated by the first drafter.
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

  get isRunnable(): boolean {
    return this.state === "running" && !this.paused && !this.isHeld && this.sharedPrefixOwner === null;
  }

  /** It would run if what it may say next were known. */
  get isRunnableOrHeld(): boolean {
    return this.state === "running" && !this.paused && this.sharedPrefixOwner === null;
  }

  /** It will compute its prompt, now or behind another whose prompt begins alike. */
  get isRunnableOrWaits(): boolean {
    return this.state === "running" && !this.paused && !this.isHeld;
  }
}

/** Whose reader is behind matters least, then the higher priority number, then who came later. */
export function mattersLess(one: Sequence, other: Sequence): boolean {
  if (one.paused !== other.paused) return one.paused;
  return one.priority === other.priority ? one.order > other.order : one.priority > other.priority;
}
