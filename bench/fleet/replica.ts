// Replica of a simulated fleet: the real scheduler with a model that computes nothing and only has step times.
import { Batch } from "../../engines/batch.ts";
import { defaultStepLimits, type SchedulerLimits } from "../../engines/decoding/scheduler/limits.ts";
import { Scheduler } from "../../engines/decoding/scheduler/scheduler.ts";
import { Sequence } from "../../engines/decoding/scheduler/sequence.ts";
import { ServerError } from "../../runtime/errors.ts";
import { idleCapabilities, idleCapacity, idleKv } from "../idle-kv.ts";
import { type StepTimes, stepMs } from "./step-times.ts";

export interface ReplicaSettings {
  readonly slots: number;
  readonly maxQueue: number;
  readonly times: StepTimes;
}

/** Request of a simulated client. */
export interface Ask {
  readonly client: string;
  /** Time at which the client sent the request, in simulated milliseconds. */
  readonly sentMs: number;
  /** Number of the conversation. The prompt begins with the prompt and the response of the previous turn. */
  readonly conversation: number;
  readonly turn: number;
  readonly promptTokens: number;
  readonly newTokens: number;
}

export interface Done {
  readonly ask: Ask;
  readonly firstTokenMs: number;
  readonly endMs: number;
  readonly cachedTokens: number;
}

const sequenceTokens = 8192;
const batchTokens = 2048;

export class Replica {
  readonly #scheduler: Scheduler<AskedSequence>;
  readonly #batch: Batch;
  readonly #times: StepTimes;
  /** Number of accepted requests whose response is not complete. */
  outstanding = 0;
  /** Total duration of the steps in ms, as if no other replica used the cores. */
  busyMs = 0;

  constructor({ slots, maxQueue, times }: ReplicaSettings) {
    const limits: SchedulerLimits = {
      ...defaultStepLimits,
      maxBatchTokens: batchTokens,
      prefixCacheEntries: slots,
      maxQueue,
      queueTimeoutMs: 1e9,
      slotShareMs: 2000,
      swapBytes: 0,
    };
    const model = {
      capacity: idleCapacity(slots, batchTokens, sequenceTokens),
      capabilities: { ...idleCapabilities, copyPrefix: true, saveState: true },
      kv: { ...idleKv, save: () => ({}) },
      tokens: { endOfGeneration: [] },
    };
    this.#scheduler = new Scheduler(model, limits);
    this.#batch = new Batch(slots, batchTokens);
    this.#times = times;
  }

  /** Accepts a request. Returns false if the queue is full. */
  take(nowMs: number, ask: Ask): boolean {
    this.#scheduler.advance(nowMs);
    try {
      this.#scheduler.add(new AskedSequence(ask));
    } catch (error) {
      if (error instanceof ServerError && error.code === "queue_full") return false;
      throw error;
    }
    this.outstanding++;
    return true;
  }

  /** Begins a step. Returns its duration in ms on cores that no other replica uses; null if there is nothing to run. */
  begin(nowMs: number): number | null {
    this.#scheduler.advance(nowMs);
    if (!this.#scheduler.schedule(this.#batch)) return null;
    const { promptTokensInStep } = this.#scheduler;
    const ms = stepMs(this.#times, this.#batch.tokenCount - promptTokensInStep, promptTokensInStep);
    this.busyMs += ms;
    return ms;
  }

  /** Ends the step, which took `ms` milliseconds. Returns the requests whose response is complete. */
  end(nowMs: number, ms: number): Done[] {
    const done: Done[] = [];
    const { requestMs } = this.#times;
    for (const [row, sequence] of this.#scheduler.rows.entries()) {
      if (this.#batch.logitsCount[row] !== 1) continue;
      if (sequence.total === sequence.promptLength) sequence.firstTokenMs = nowMs + requestMs;
      const { ask, firstTokenMs, cachedTokens } = sequence;
      if (this.#scheduler.accept(sequence, tokenAt(ask.conversation, sequence.total)) === "none") continue;
      this.outstanding--;
      done.push({ ask, firstTokenMs, endMs: nowMs + requestMs, cachedTokens: Math.max(cachedTokens, 0) });
    }
    this.#scheduler.endStep(ms);
    return done;
  }
}

class AskedSequence extends Sequence {
  readonly ask: Ask;
  firstTokenMs = Number.NaN;

  constructor(ask: Ask) {
    const { client, conversation, promptTokens, newTokens } = ask;
    super({
      client,
      hasQueueLimit: true,
      prompt: promptOf(conversation, promptTokens),
      maxNewTokens: newTokens,
      ignoreEos: true,
      adapter: 0,
      priority: 0,
      isPooled: false,
      wantsPromptLogits: false,
    });
    this.ask = ask;
  }
}

function promptOf(conversation: number, length: number): Int32Array {
  const prompt = new Int32Array(length);
  for (let place = 0; place < length; place++) prompt[place] = tokenAt(conversation, place);
  return prompt;
}

/**
 * Returns the token at a position of a conversation. Prompts and responses use the same rule, so that the prefix cache has the earlier
 * turns of a conversation.
 */
function tokenAt(conversation: number, place: number): number {
  return (Math.imul(conversation + 1, 0x9e3779b1) ^ Math.imul(place + 1, 0x85ebca6b)) & 0x7fffffff;
}
