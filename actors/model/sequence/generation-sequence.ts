// Generation sequence: a sequence with its subscriber, sampling and grammar.
import type { Matcher } from "../../../engines/decoding/grammar/matcher.ts";
import type { SamplingState } from "../../../engines/decoding/sampler/sampler.ts";
import { Sequence, type SequenceOptions } from "../../../engines/decoding/scheduler/sequence.ts";
import type { TokenFrame } from "../../messages.ts";
import type { StreamClock } from "../stream-latency.ts";
import type { PromptLogprobs } from "./prompt-logprobs.ts";
import type { ReasoningBudget } from "./reasoning-budget.ts";

/** Submits sequences and receives their tokens. Two subscribers are equal only if they are the same object. */
export interface Subscriber {
  send(frame: TokenFrame): void;
}

/** Options of a running sequence: how its tokens are chosen, and which subscriber receives them. */
export interface LiveOptions {
  readonly id: number;
  readonly subscriber: Subscriber;
  readonly sampling: SamplingState;
  readonly thinking: ReasoningBudget | null;
  readonly promptRecords: PromptLogprobs | null;
}

export class GenerationSequence extends Sequence {
  readonly live: LiveOptions;
  /** Time when the sequence was first scheduled, in ms of performance.now(); 0 = not scheduled yet. */
  startedMs = 0;
  /** Tokens to append without sampling. Those before index `forcedAt` have already been appended. */
  forced: Int32Array = new Int32Array(0);
  forcedAt = 0;
  /** True if `forced` contains the tokens that the grammar requires after the last sampled token. */
  hasForced = false;
  /** Matches the output against the grammar; null = no grammar. Created when the sequence is queued. */
  matcher: Matcher | null = null;
  /** Measures the token latencies of the sequence; null = not measured. */
  clock: StreamClock | null = null;

  constructor(options: SequenceOptions, live: LiveOptions) {
    super(options);
    this.live = live;
  }
}
