// Generation sequence: a sequence with its subscriber, sampling and grammar; pooled sequence: one with a sink of vectors.
import type { Matcher } from "../../../engines/decoding/grammar/matcher.ts";
import type { SamplingState } from "../../../engines/decoding/sampler/sampler.ts";
import { Sequence, type SequenceOptions } from "../../../engines/decoding/scheduler/sequence.ts";
import type { ErrorRecord } from "../../../runtime/errors.ts";
import type { TokenFrame } from "../../messages.ts";
import type { StreamClock } from "../stream-latency.ts";
import type { PromptLogprobs } from "./prompt-logprobs.ts";
import type { ReasoningBudget } from "./reasoning-budget.ts";

/** The receiver of the tokens of the sequences that it submits. Compared by identity. */
export interface Subscriber {
  send(frame: TokenFrame): void;
}

/** How the tokens of a sequence are chosen, and their receiver. */
export interface LiveOptions {
  readonly id: number;
  readonly subscriber: Subscriber;
  readonly sampling: SamplingState;
  readonly thinking: ReasoningBudget | null;
  readonly promptRecords: PromptLogprobs | null;
}

export class GenerationSequence extends Sequence {
  readonly live: LiveOptions;
  /** When it was first scheduled, in ms of performance.now(); 0 = not yet. */
  startedMs = 0;
  /** Tokens that follow without sampling, from forcedAt on. */
  forced: Int32Array = new Int32Array(0);
  forcedAt = 0;
  /** The tokens that its grammar forces behind the last sampled token have been taken. */
  hasForced = false;
  /** Follows its grammar; null: none. Opened once the sequence is queued. */
  matcher: Matcher | null = null;
  /** null: its latencies are not counted. */
  clock: StreamClock | null = null;

  constructor(options: SequenceOptions, live: LiveOptions) {
    super(options);
    this.live = live;
  }
}

/** Takes the pooled output of one sequence. */
export interface PoolSink {
  /** `values` is valid during the call. `position`: prompt tokens before those of the row. */
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
