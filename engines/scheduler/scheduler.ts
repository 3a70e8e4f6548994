// Owns which tokens of which sequences go into the next forward pass. There is no prefill phase and no decode phase: each
// step spends a token budget on letting every sequence's computed tokens catch up with its total. Pure policy: it never
// waits, reads no clock and does no I/O; the step loop calls schedule -> (engine, sampler) -> accept -> endStep.
import { ServerError } from "../../runtime/errors.ts";
import type { Batch } from "../batch.ts";
import type { Capabilities, Capacity, KvCache } from "../engine.ts";
import type { Sequence } from "./sequence.ts";
import { StepCost, type StepTarget } from "./step-cost.ts";

export interface SchedulerLimits extends StepTarget {
  /** Tokens in one step, decodes and prompt chunks together. */
  readonly maxBatchTokens: number;
  /** Tokens of one prompt in one step. */
  readonly maxPrefillChunkTokens: number;
  /** Decode-only steps while a prompt waits. */
  readonly maxDecodeStepsBeforePrefill: number;
  /** Sequences that may wait for a slot. */
  readonly maxQueue: number;
}

export type Finish = "none" | "stop" | "length";

/** Chunks of a prompt end on multiples of this from position 0, whatever the load, or at the prompt's end. */
const chunkGrain = 32;

export class Scheduler<S extends Sequence> {
  /** Sequence of each row of the batch last scheduled. */
  readonly rows: S[] = [];
  readonly #capacity: Capacity;
  readonly #capabilities: Capabilities;
  readonly #kv: KvCache;
  readonly #endTokens: ReadonlySet<number>;
  readonly #limits: SchedulerLimits;
  readonly #cost: StepCost;
  readonly #grain: number;
  readonly #waiting: S[] = [];
  /** In order of admission. */
  readonly #running: S[] = [];
  /** Lowest slot last, so that pop() gives it. */
  readonly #freeSlots: number[];
  #decodeOnlySteps = 0;
  /** Where the round over decodes starts when the budget does not hold them all. */
  #decodeStart = 0;
  #shortestFirst = false;
  #decodesInStep = 0;
  #promptTokensInStep = 0;

  constructor(
    model: {
      readonly capacity: Capacity;
      readonly capabilities: Capabilities;
      readonly kv: KvCache;
      readonly tokens: { readonly endOfGeneration: readonly number[] };
    },
    limits: SchedulerLimits,
  ) {
    this.#capacity = model.capacity;
    this.#capabilities = model.capabilities;
    this.#kv = model.kv;
    this.#endTokens = new Set(model.tokens.endOfGeneration);
    this.#limits = limits;
    this.#cost = new StepCost(model.capacity.maxSequences, limits);
    this.#grain = Math.min(chunkGrain, limits.maxPrefillChunkTokens, limits.maxBatchTokens);
    this.#freeSlots = Array.from(
      { length: model.capacity.maxSequences },
      (_, i) => model.capacity.maxSequences - 1 - i,
    );
  }

  get waitingCount(): number {
    return this.#waiting.length;
  }

  get runningCount(): number {
    return this.#running.length;
  }

  /** Whether schedule() would find rows. */
  get isRunnable(): boolean {
    if (this.#waiting.length > 0 && this.#freeSlots.length > 0) return true;
    return this.#running.some((sequence) => sequence.isRunnable);
  }

  /** Queues a sequence. Throws `context_length_exceeded`, `unsupported` or `queue_full`. */
  add(sequence: S): void {
    if (sequence.promptLength === 0) {
      throw new ServerError("invalid_value", "the prompt is empty; expected at least one token", { param: "prompt" });
    }
    if (sequence.tokens.length > this.#capacity.sequenceTokens) {
      throw new ServerError(
        "context_length_exceeded",
        `prompt (${sequence.promptLength} tokens) and max_tokens (${sequence.tokens.length - sequence.promptLength}) ` +
          `exceed the ${this.#capacity.sequenceTokens} tokens a sequence of this model may hold`,
      );
    }
    if (sequence.adapter !== 0 && this.#capabilities.adaptersPerStep === 0) {
      throw new ServerError("unsupported", "this model was loaded without adapters", { param: "adapter" });
    }
    if (this.#waiting.length >= this.#waitingLimit) {
      throw new ServerError(
        "queue_full",
        `the queue is full: max_queue ${this.#limits.maxQueue} sequences wait for a slot already; try again later`,
      );
    }
    this.#waiting.push(sequence);
  }

  /** Removes a sequence in any state. The engine forgets it at once. */
  cancel(sequence: S): void {
    this.#finish(sequence);
  }

  setPaused(sequence: S, paused: boolean): void {
    sequence.paused = paused;
  }

  /** Fills the batch with the next step. Returns false when there is nothing to run. */
  schedule(batch: Batch): boolean {
    batch.clear();
    this.rows.length = 0;
    this.#promptTokensInStep = 0;
    this.#admit();
    const decodes = this.#countDecodes();
    const forced = this.#decodeOnlySteps >= this.#limits.maxDecodeStepsBeforePrefill;
    const budget = this.#limits.maxBatchTokens;
    if (forced) this.#addPrompts(batch, Math.min(this.#allowance(decodes, true), budget));
    this.#addDecodes(batch, budget - batch.tokenCount);
    if (!forced) this.#addPrompts(batch, Math.min(this.#allowance(decodes, false), budget - batch.tokenCount));
    return batch.rowCount > 0;
  }

  /**
   * Takes the token sampled for a sequence whose logits the last step gave. Returns how that ends it; the token that
   * ended it is not part of the text.
   */
  accept(sequence: S, token: number): Finish {
    if (!sequence.ignoreEos && this.#endTokens.has(token)) {
      this.#finish(sequence);
      return "stop";
    }
    sequence.tokens[sequence.total++] = token;
    if (sequence.total < sequence.tokens.length) return "none";
    this.#finish(sequence);
    return "length";
  }

  /** Closes the step that took `stepMs` milliseconds. */
  endStep(stepMs: number): void {
    this.#cost.observe(this.#decodesInStep, this.#promptTokensInStep, stepMs);
    const promptWaits = this.#promptTokensInStep === 0 && this.#running.some((s) => s.isRunnable && s.pending > 1);
    this.#decodeOnlySteps = promptWaits ? this.#decodeOnlySteps + 1 : 0;
  }

  /** Throws if the books do not balance: slots free + used = total, none twice, counters in range. */
  checkIntegrity(): void {
    const slots = [...this.#freeSlots, ...this.#running.map((sequence) => sequence.slot)].sort((a, b) => a - b);
    const balanced = slots.length === this.#capacity.maxSequences && slots.every((slot, i) => slot === i);
    if (!balanced) throw new Error(`slots do not balance: ${slots.join(",")}`);
    for (const sequence of this.#running) {
      const { computed, total, tokens, state } = sequence;
      if (state !== "running" || computed < 0 || computed >= total || total >= tokens.length) {
        throw new Error(
          `running sequence in slot ${sequence.slot}: state ${state}, ${computed}/${total}/${tokens.length}`,
        );
      }
    }
    for (const sequence of this.#waiting) {
      if (sequence.state !== "waiting" || sequence.slot !== -1)
        throw new Error(`waiting sequence is ${sequence.state}`);
    }
    if (this.#waiting.length > this.#waitingLimit) throw new Error(`${this.#waiting.length} sequences wait`);
  }

  /** A sequence with a free slot ahead of it only waits for the next step: it does not count. */
  get #waitingLimit(): number {
    return this.#limits.maxQueue + this.#freeSlots.length;
  }

  #admit(): void {
    while (this.#waiting.length > 0 && this.#freeSlots.length > 0) {
      const sequence = this.#waiting.shift() as S;
      sequence.slot = this.#freeSlots.pop() as number;
      sequence.state = "running";
      this.#running.push(sequence);
    }
  }

  #countDecodes(): number {
    let count = 0;
    for (const sequence of this.#running) if (sequence.isRunnable && sequence.pending === 1) count++;
    return count;
  }

  /** One token of each decoding sequence; a budget too small for all takes them in turn. */
  #addDecodes(batch: Batch, budget: number): void {
    const count = this.#running.length;
    let added = 0;
    for (let i = 0; i < count && added < budget; i++) {
      const index = (this.#decodeStart + i) % count;
      const sequence = this.#running[index] as S;
      if (!sequence.isRunnable || sequence.pending !== 1) continue;
      this.#addRow(batch, sequence, sequence.total);
      added++;
      if (added === budget) this.#decodeStart = (index + 1) % count;
    }
    this.#decodesInStep = added;
  }

  /** Chunks of prompts, in order of admission and of what is left of them by turns: long ones go on, short ones get by. */
  #addPrompts(batch: Batch, allowance: number): void {
    if (allowance <= 0) return;
    const prompts = this.#running.filter((sequence) => sequence.isRunnable && sequence.pending > 1);
    if (prompts.length === 0) return;
    if (this.#shortestFirst) prompts.sort((a, b) => a.pending - b.pending);
    this.#shortestFirst = !this.#shortestFirst;
    let left = allowance;
    for (const sequence of prompts) {
      if (left <= 0) return;
      const to = this.#chunkEnd(sequence, Math.min(left, this.#limits.maxPrefillChunkTokens));
      if (to <= sequence.computed) return;
      left -= to - sequence.computed;
      this.#promptTokensInStep += to - sequence.computed;
      this.#addRow(batch, sequence, to);
    }
  }

  /** Prompt tokens for a step beside so many decodes; at least one grain where nothing else would run or it is due. */
  #allowance(decodes: number, due: boolean): number {
    const allowance = this.#cost.promptAllowance(decodes) ?? 0;
    return due || decodes === 0 ? Math.max(allowance, this.#grain) : allowance;
  }

  #chunkEnd(sequence: S, length: number): number {
    const end = sequence.computed + length;
    if (end >= sequence.total) return sequence.total;
    return end - (end % this.#grain);
  }

  #addRow(batch: Batch, sequence: S, to: number): void {
    batch.addRow(sequence.slot, sequence.tokens, sequence.computed, to, to === sequence.total, sequence.adapter);
    sequence.computed = to;
    this.rows.push(sequence);
  }

  #finish(sequence: S): void {
    if (sequence.state === "running") {
      remove(this.#running, sequence);
      this.#kv.release(sequence.slot);
      this.#freeSlots.push(sequence.slot);
      this.#freeSlots.sort((a, b) => b - a);
      sequence.slot = -1;
    } else if (sequence.state === "waiting") {
      remove(this.#waiting, sequence);
    }
    sequence.state = "finished";
  }
}

function remove<T>(list: T[], item: T): void {
  const index = list.indexOf(item);
  if (index >= 0) list.splice(index, 1);
}
