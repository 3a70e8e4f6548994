// Owns a sequence together with what the step loop needs to know of it: whom its tokens go to, and how they are chosen.
import type { Matcher } from "../../../engines/decoding/grammar/matcher.ts";
import type { SamplingState } from "../../../engines/decoding/sampler/sampler.ts";
import { Sequence, type SequenceOptions } from "../../../engines/decoding/scheduler/sequence.ts";
import type { ErrorRecord } from "../../../runtime/errors.ts";
import type { TokenFrame } from "../../messages.ts";
import type { StreamClock } from "../stream-latency.ts";
import type { PromptLogprobs } from "./prompt-logprobs.ts";
import type { ReasoningBudget } from "./reasoning-budget.ts";

/** Whoever asked for sequences and takes their tokens. Compared by identity. */
export interface Subscriber {
  send(frame: TokenFrame): void;
}

/** What becomes of a sequence that is generated. */
export interface LiveOptions {
  readonly id: number;
  readonly subscriber: Subscriber;
  readonly sampling: SamplingState;
  readonly thinking: ReasoningBudget | null;
  readonly promptRecords: PromptLogprobs | null;
}

export class GenerationSequence extends Sequence {
  readonly live: LiveOptions;
  /** When it was first scheduled, in ms; 0 = not yet. */
  startedMs = 0;
  /** Tokens that come next whatever the model says, from forcedAt on. */
  forced: Int32Array = new Int32Array(0);
  forcedAt = 0;
  /** What its grammar forces behind the token sampled last has been taken. */
  hasForced = false;
  /** Follows its grammar; null where it has none. Opened once the sequence is queued. */
  matcher: Matcher | null = null;
  /** null where its latencies are not counted. */
  clock: StreamClock | null = null;

  constructor(options: SequenceOptions, live: LiveOptions) {
    super(options);
    this.live = live;
  }
}

/** Takes the pooled output of one sequence. */
export interface PoolSink {
  /** `values` is lent. `position`: tokens of the prompt before those of the row. */
  add(values: Float32Array, position: number): void;
  done(): void;
  fail(error: ErrorRecord): void;
}

export class PooledSequence extends Sequence {
  readonly sink: PoolSink;

  constructor(options: SequenceOptions, sink: PoolSink) {
    super(options);
    this.sink = sink;
  }
}
