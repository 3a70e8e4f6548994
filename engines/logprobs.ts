// Logprob records: token logprobs as flat numbers. They are sent between threads and stored for the response writer in
// this form.

/** Maximum vocabulary size: a 32-bit float represents every smaller id exactly. */
export const maxVocabulary = 2 ** 24;

/** Number of floats in a record before its alternatives: token id, its logprob, number of alternatives. */
export const recordHead = 3;

/** Logprob records of `count` consecutive tokens. */
export interface LogprobRecords {
  readonly count: number;
  /** One record per token, `[id, logprob, n, n x (id, logprob)]`, with the likeliest alternative first. */
  readonly floats: Float32Array;
}

/** Returns the number of floats in the record at index `at`. */
export function recordLength(floats: Float32Array, at: number): number {
  return recordHead + 2 * (floats[at + 2] as number);
}

const noFloats = new Float32Array(0);
const firstBlockFloats = 256;
const largestBlockFloats = 2 ** 16;

/** Growing list of records, stored in a few large blocks. No record is split between two blocks. */
export class LogprobList {
  readonly #blocks: Float32Array[] = [];
  /** The block being filled, which is the last of #blocks. */
  #block = noFloats;
  #used = 0;
  #count = 0;

  get count(): number {
    return this.#count;
  }

  add({ count, floats }: LogprobRecords): void {
    if (this.#used + floats.length > this.#block.length) this.#open(floats.length);
    this.#block.set(floats, this.#used);
    this.#used += floats.length;
    this.#count += count;
  }

  /** Returns the records added so far as arrays of whole records. The arrays stay valid when more records are added. */
  blocks(): readonly Float32Array[] {
    const last = this.#blocks.length - 1;
    return this.#blocks.map((block, i) => (i === last ? block.subarray(0, this.#used) : block));
  }

  /** Returns all records in one new array. */
  records(): LogprobRecords {
    const blocks = this.blocks();
    const floats = new Float32Array(blocks.reduce((length, block) => length + block.length, 0));
    let at = 0;
    for (const block of blocks) {
      floats.set(block, at);
      at += block.length;
    }
    return { count: this.#count, floats };
  }

  #open(least: number): void {
    const last = this.#blocks.length - 1;
    if (last >= 0) this.#blocks[last] = this.#block.subarray(0, this.#used);
    const next = Math.min(Math.max(2 * this.#block.length, firstBlockFloats), largestBlockFloats);
    this.#block = new Float32Array(Math.max(next, least));
    this.#used = 0;
    this.#blocks.push(this.#block);
  }
}
