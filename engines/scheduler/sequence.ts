// Owns the state of one sequence as the scheduler sees it: its tokens and how many of them the engine has computed.
// Only the scheduler changes it.

/**
 * waiting: queued, no slot. running: holds a slot. parked: its reader is behind, and it has no slot or has had to give
 * it up; it keeps its tokens only. finished: holds nothing.
 */
export type SequenceState = "waiting" | "running" | "parked" | "finished";

export interface SequenceOptions {
  /** Whose it is: clients take turns. */
  readonly client: string;
  /** The limit of the time in the queue is for it. False for all but the first choice of a request, which come after it. */
  readonly hasQueueLimit: boolean;
  readonly prompt: Int32Array;
  /** Most tokens to generate, >= 1. */
  readonly maxNewTokens: number;
  /** Go on after an end-of-generation token. */
  readonly ignoreEos: boolean;
  /** 0 = the base model. */
  readonly adapter: number;
}

export class Sequence {
  /** Prompt, then output. [0, computed) is in the KV cache, [computed, total) is still to be fed. */
  readonly tokens: Int32Array;
  readonly promptLength: number;
  readonly client: string;
  readonly hasQueueLimit: boolean;
  readonly ignoreEos: boolean;
  readonly adapter: number;
  state: SequenceState = "waiting";
  /** The engine's slot while running, else -1. */
  slot = -1;
  computed = 0;
  total: number;
  /** Its reader is behind: it is not scheduled, and loses its slot to a sequence that waits for one. */
  paused = false;
  /** When it was queued and when it was paused last, as the scheduler was told the time. */
  queuedMs = 0;
  pausedMs = 0;

  constructor(options: SequenceOptions) {
    this.promptLength = options.prompt.length;
    this.tokens = new Int32Array(this.promptLength + options.maxNewTokens);
    this.tokens.set(options.prompt);
    this.total = this.promptLength;
    this.client = options.client;
    this.hasQueueLimit = options.hasQueueLimit;
    this.ignoreEos = options.ignoreEos;
    this.adapter = options.adapter;
  }

  /** Tokens the engine has yet to see. 1 while decoding. */
  get pending(): number {
    return this.total - this.computed;
  }

  get isRunnable(): boolean {
    return this.state === "running" && !this.paused;
  }
}
