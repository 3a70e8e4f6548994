// Thread KV: the KV cache of one compute thread during a pass. It lists the pages of the pass's rows, stores keys and
// values, and runs attention. The leader keeps the page table (decoding/kv/page-table.ts). Block b of a sequence is on
// thread b % threads. Therefore every thread computes attention over its own pages, and the results of all threads are
// merged.
import type { AttentionRules } from "../graph/graph.ts";
import type { KernelExports } from "../load/kernel-exports.ts";
import type { PartitionPlan } from "../plan/partition-plan.ts";
import { type PassDescriptor, rowField } from "../plan/pass-descriptor.ts";
import { partialTail, type ThreadMemory } from "../threads/thread-memory.ts";

const floatBytes = 4;
/** Bytes of an entry in the page list that attend() reads: address of the page, and position of its first token. */
const entryBytes = 8;
/** Value of attend()'s parameters `behind` and `ahead` that means all positions. */
const allPositions = 0x7fffffff;

export class ThreadKv {
  readonly #plan: PartitionPlan;
  readonly #index: number;
  readonly #pass: PassDescriptor;
  readonly #kernels: KernelExports;
  readonly #at: ThreadMemory;
  /** Page list; its addresses are those of the current layer. */
  readonly #list: Int32Array;
  /** For each row of the pass: its first entry in the list, and its number of entries. */
  readonly #firstEntry: Int32Array;
  readonly #entryCount: Int32Array;
  #entries = 0;

  constructor(
    plan: PartitionPlan,
    index: number,
    pass: PassDescriptor,
    kernels: KernelExports,
    at: ThreadMemory,
    memory: SharedArrayBuffer,
  ) {
    this.#plan = plan;
    this.#index = index;
    this.#pass = pass;
    this.#kernels = kernels;
    this.#at = at;
    if (at.slopes !== 0) new Float32Array(memory, at.slopes, plan.shape.heads).set(slopesOf(plan.shape));
    const ints = (at.pageListBytes / Int32Array.BYTES_PER_ELEMENT) | 0;
    this.#list = new Int32Array(memory, at.pageList, ints);
    this.#firstEntry = new Int32Array(plan.maxRows);
    this.#entryCount = new Int32Array(plan.maxRows);
  }

  /** Number of floats that attend() writes for each token. */
  get partialFloats(): number {
    const { heads, headLength } = this.#plan.shape;
    return heads * (headLength + partialTail);
  }

  /**
   * Lists the pages of every row, with their addresses in the first layer. Called at the start of a pass. The first
   * pass of an X-LoRA mixture has its own KV layers.
   */
  beginPass(): void {
    const pass = this.#pass;
    const { blockTokens, threads, shape } = this.#plan;
    const { kvPageBytes, kvLayerBytes } = this.#at;
    const kv = this.#at.kv + (pass.isFirstPass ? shape.layers * kvLayerBytes : 0);
    let count = 0;
    for (let row = 0; row < pass.rowCount; row++) {
      const firstPage = pass.row(row, rowField.firstPage);
      const blocks = pass.row(row, rowField.blockCount);
      this.#firstEntry[row] = count;
      for (let block = this.#index; block < blocks; block += threads) {
        this.#list[count * 2] = kv + (pass.pages[firstPage + block] as number) * kvPageBytes;
        this.#list[count * 2 + 1] = block * blockTokens;
        count++;
      }
      this.#entryCount[row] = count - (this.#firstEntry[row] as number);
    }
    this.#entries = count;
  }

  /** Changes the addresses in the page list from the current layer to the next layer. Called after every layer. */
  nextLayer(): void {
    const { kvLayerBytes } = this.#at;
    for (let i = 0; i < this.#entries; i++) this.#list[i * 2] = (this.#list[i * 2] as number) + kvLayerBytes;
  }

  /**
   * Stores the keys and values of those tokens of the pass whose pages are on this thread, and attends over all pages on this thread.
   * `joined` is the address of the tokens' queries, keys and values, side by side for each token. `out` is the address of the results,
   * partialFloats floats for each token.
   *
   * Sliding-window layers also keep the keys and values of tokens before the window; attention does not read them. Therefore a sequence can
   * be truncated, shared and saved at any position.
   */
  attend(
    rules: Pick<AttentionRules, "behind" | "ahead" | "scale" | "softcap" | "inWindows">,
    joined: number,
    out: number,
  ): void {
    const { shape, blockTokens, kvType } = this.#plan;
    const { heads, kvHeads, headLength } = shape;
    const stride = (heads + 2 * kvHeads) * headLength;
    const behind = Math.min(rules.behind, allPositions);
    const { rowCount, windowCount } = this.#pass;
    const end = rules.inWindows ? windowCount : rowCount;
    for (let row = rules.inWindows ? 0 : windowCount; row < end; row++) {
      const firstToken = this.#pass.row(row, rowField.firstToken);
      const length = this.#pass.row(row, rowField.length);
      const firstPosition = this.#pass.row(row, rowField.firstPosition);
      const seesAhead = this.#pass.row(row, rowField.seesAhead) === 1;
      const ahead = seesAhead ? allPositions : Math.min(rules.ahead, allPositions);
      const attended = length - this.#pass.row(row, rowField.unattended);
      this.#store(row, joined + firstToken * stride * floatBytes, stride, attended, firstPosition);
      const run = (first: number, count: number, position: number, before: number, after: number) =>
        this.#kernels.attend(
          kvType,
          this.#at.pageList + (this.#firstEntry[row] as number) * entryBytes,
          this.#entryCount[row] as number,
          blockTokens,
          joined + first * stride * floatBytes,
          stride,
          count,
          position,
          heads,
          kvHeads,
          headLength,
          rules.scale,
          rules.softcap,
          before,
          after,
          out + first * this.partialFloats * floatBytes,
          this.#at.slopes,
        );
      run(firstToken, attended, firstPosition, behind, ahead);
      // An unattended token (a mask token that pads a query) attends to the same tokens as the last attended token, except those that are
      // outside its own window.
      const last = firstPosition + attended - 1;
      for (let i = attended; i < length; i++) {
        run(firstToken + i, 1, last, Math.max(behind - (firstPosition + i - last), 0), 0);
      }
    }
  }

  #store(row: number, joined: number, stride: number, length: number, firstPosition: number): void {
    const { shape, blockTokens, kvType, threads } = this.#plan;
    const { heads, kvHeads, headLength } = shape;
    const kvBytes = kvHeads * headLength * floatBytes;
    for (let i = 0; i < length; i++) {
      const position = firstPosition + i;
      const block = Math.floor(position / blockTokens);
      if (block % threads !== this.#index) continue;
      const entry = (this.#firstEntry[row] as number) + Math.floor(block / threads);
      const page = this.#list[entry * 2] as number;
      const key = joined + (i * stride + heads * headLength) * floatBytes;
      const index = position % blockTokens;
      this.#kernels.kvWrite(kvType, page, index, blockTokens, key, key + kvBytes, kvHeads, headLength);
    }
  }
}

/**
 * Returns the slope of the position bias of each head: powers of two, as in the paper on ALiBi (arXiv 2108.12409). If the number of heads
 * is not a power of two, the heads above the next lower power of two have the exponents 0.5, 1.5, 2.5, ... instead of 1, 2, 3, ...
 */
function slopesOf({ heads, alibi }: PartitionPlan["shape"]): number[] {
  const power = 2 ** Math.floor(Math.log2(heads));
  return Array.from({ length: heads }, (_, head) => {
    const step = head < power ? head + 1 : head - power + 0.5;
    return 2 ** ((-alibi * step) / power);
  });
}
