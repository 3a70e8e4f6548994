// Owns building the token frame of one or a few steps for one consumer. The buffers live as long as the consumer; what leaves is an
// exact copy, because sending clones a view's whole buffer.
import type { TokenLogprobs } from "../../engines/sampler/sampler.ts";
import { MAX_TOP_LOGPROBS } from "../../engines/sampler/state.ts";
import type { Finish } from "../../engines/scheduler/scheduler.ts";
import {
  rowFinishedLength,
  rowFinishedStop,
  rowHasLogprobs,
  rowHasToken,
  rowInts,
  type TokenFrame,
} from "../messages.ts";

const unitsPerMs = 100;
/** Steps whose tokens fit into one frame. */
const stepsHeld = 8;
const none: TokenFrame["failed"] = [];
// Chosen logprob, count, and the pairs.
const maxLogprobFloats = 2 + 2 * MAX_TOP_LOGPROBS;

export class FrameBuilder {
  readonly #rows: Int32Array;
  readonly #logprobs: Float32Array;
  #rowCount = 0;
  #floatCount = 0;

  readonly #rowsPerStep: number;

  constructor(rowsPerStep: number) {
    this.#rowsPerStep = rowsPerStep;
    this.#rows = new Int32Array(rowsPerStep * stepsHeld * rowInts);
    this.#logprobs = new Float32Array(rowsPerStep * stepsHeld * maxLogprobFloats);
  }

  add(id: number, token: number, finish: Finish, elapsedMs: number): void {
    const at = this.#rowCount++ * rowInts;
    this.#rows[at] = id;
    this.#rows[at + 1] = token;
    this.#rows[at + 2] = flagsOf[finish];
    this.#rows[at + 3] = elapsedMs * unitsPerMs;
  }

  /** Adds the logprobs of the row added last. */
  addLogprobs(last: TokenLogprobs): void {
    const flags = this.#rowCount * rowInts - 2;
    this.#rows[flags] = (this.#rows[flags] as number) | rowHasLogprobs;
    this.#logprobs[this.#floatCount++] = last.chosen;
    this.#logprobs[this.#floatCount++] = last.count;
    for (let i = 0; i < last.count; i++) {
      // Token ids stay exact in a float: vocabularies are far below 2^24.
      this.#logprobs[this.#floatCount++] = last.ids[i] as number;
      this.#logprobs[this.#floatCount++] = last.logprobs[i] as number;
    }
  }

  /** Whether another step's rows might not fit. */
  get isFull(): boolean {
    return (this.#rowCount + this.#rowsPerStep) * rowInts > this.#rows.length;
  }

  /** The frame, or null when nothing was made for this consumer. Empties the builder. */
  take(): TokenFrame | null {
    if (this.#rowCount === 0) return null;
    const rows = this.#rows.slice(0, this.#rowCount * rowInts);
    const logprobs = this.#floatCount > 0 ? this.#logprobs.slice(0, this.#floatCount) : null;
    this.#rowCount = 0;
    this.#floatCount = 0;
    return { rows, logprobs, failed: none };
  }
}

const flagsOf: Readonly<Record<Finish, number>> = {
  none: rowHasToken,
  stop: rowFinishedStop,
  length: rowHasToken | rowFinishedLength,
};
