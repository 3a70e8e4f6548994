// Frame builder: collects the tokens of one or several steps for one subscriber, and returns them as a frame (a message). It
// reuses its buffers as long as the subscriber exists. Frames are copies of the exact size, because posting a view of a buffer to
// another thread copies the whole buffer.
import type { TokenLogprobs } from "../../engines/decoding/sampler/sampler.ts";
import { MAX_TOP_LOGPROBS } from "../../engines/decoding/sampler/state.ts";
import type { Finish } from "../../engines/decoding/scheduler/scheduler.ts";
import {
  type PromptLogprobsRecord,
  rowFinishedLength,
  rowFinishedStop,
  rowHasLogprobs,
  rowHasToken,
  rowInts,
  type TokenFrame,
} from "../messages.ts";

const unitsPerMs = 100;
/** Frame capacity in steps: `isFull` becomes true after `stepsHeld` steps; `spareSteps` more steps still fit. */
const stepsHeld = 8;
const spareSteps = 1;
const noFailures: TokenFrame["failed"] = [];
const noPrompts: TokenFrame["prompts"] = [];
// A logprob record is the chosen logprob, the count n, and n pairs (token id, logprob).
const maxLogprobFloats = 2 + 2 * MAX_TOP_LOGPROBS;

export class FrameBuilder {
  readonly #rows: Int32Array;
  readonly #logprobs: Float32Array;
  readonly #cached: Int32Array;
  #prompts: PromptLogprobsRecord[] = [];
  #rowCount = 0;
  #floatCount = 0;
  #cachedCount = 0;

  readonly #rowsPerStep: number;

  /** `rowsPerStep`: maximum number of sampled tokens per step. Tokens forced by a grammar are added only if there is room. */
  constructor(rowsPerStep: number) {
    this.#rowsPerStep = rowsPerStep;
    const rows = rowsPerStep * (stepsHeld + spareSteps);
    this.#rows = new Int32Array(rows * rowInts);
    this.#logprobs = new Float32Array(rows * maxLogprobFloats);
    this.#cached = new Int32Array(2 * rows);
  }

  /** Adds data about a sequence's prompt: the number of cached tokens, and the prompt logprobs if requested. */
  begin(id: number, cachedTokens: number, logprobs: Float32Array | null): void {
    if (cachedTokens > 0) {
      this.#cached[this.#cachedCount++] = id;
      this.#cached[this.#cachedCount++] = cachedTokens;
    }
    if (logprobs !== null) this.#prompts.push({ id, records: logprobs });
  }

  add(id: number, token: number, finish: Finish, elapsedMs: number): void {
    const at = this.#rowCount++ * rowInts;
    this.#rows[at] = id;
    this.#rows[at + 1] = token;
    this.#rows[at + 2] = flagsOf[finish];
    this.#rows[at + 3] = elapsedMs * unitsPerMs;
  }

  /** Adds a row for a sequence that has ended without another token. */
  addEnd(id: number, finish: "stop" | "length", elapsedMs: number): void {
    this.add(id, 0, finish, elapsedMs);
    const flags = this.#rowCount * rowInts - 2;
    this.#rows[flags] = (this.#rows[flags] as number) & ~rowHasToken;
  }

  /** Adds the logprobs of the token that was added last. */
  addLogprobs(last: TokenLogprobs): void {
    const flags = this.#rowCount * rowInts - 2;
    this.#rows[flags] = (this.#rows[flags] as number) | rowHasLogprobs;
    this.#logprobs[this.#floatCount++] = last.chosen;
    this.#logprobs[this.#floatCount++] = last.count;
    for (let i = 0; i < last.count; i++) {
      // A float can hold a token id exactly, because vocabularies are much smaller than 2^24.
      this.#logprobs[this.#floatCount++] = last.ids[i] as number;
      this.#logprobs[this.#floatCount++] = last.logprobs[i] as number;
    }
  }

  /** Whether the rows of one more step might not fit. */
  get isFull(): boolean {
    return (this.#rowCount + (1 + spareSteps) * this.#rowsPerStep) * rowInts > this.#rows.length;
  }

  /** Returns the collected tokens as a frame and empties the builder; null = no tokens. */
  take(): TokenFrame | null {
    if (this.#rowCount === 0) return null;
    const rows = this.#rows.slice(0, this.#rowCount * rowInts);
    const logprobs = this.#floatCount > 0 ? this.#logprobs.slice(0, this.#floatCount) : null;
    const cached = this.#cachedCount > 0 ? this.#cached.slice(0, this.#cachedCount) : null;
    const prompts = this.#prompts.length > 0 ? this.#prompts : noPrompts;
    this.#rowCount = 0;
    this.#floatCount = 0;
    this.#cachedCount = 0;
    if (prompts !== noPrompts) this.#prompts = [];
    return { rows, logprobs, cached, prompts, failed: noFailures };
  }
}

const flagsOf: Readonly<Record<Finish, number>> = {
  none: rowHasToken,
  stop: rowFinishedStop,
  length: rowHasToken | rowFinishedLength,
};
