// Owns one compute thread's pages of the KV cache during a pass: which of them its rows have, storing keys and values, and
// attending. The leader keeps the books (paging/page-table.ts); block b of a sequence lies with thread b % threads, so every
// thread attends over its own pages and the results are merged.
import type { AttentionStep } from "../graph/architectures/architecture.ts";
import type { KernelExports } from "../load/kernel-exports.ts";
import type { PartitionPlan } from "../plan/partition-plan.ts";
import { type PassDescriptor, rowField } from "../plan/pass-descriptor.ts";
import { partialTail, type ThreadMemory } from "../threads/thread-memory.ts";

const floatBytes = 4;
/** Bytes of an entry of the list attend() reads: address and first position. */
const entryBytes = 8;
/** What the kernels take for all positions. */
const allPositions = 0x7fffffff;

export class ThreadKv {
  readonly #blueprint: PartitionPlan;
  readonly #index: number;
  readonly #order: PassDescriptor;
  readonly #kernels: KernelExports;
  readonly #at: ThreadMemory;
  /** The list of pages, with addresses in the layer that runs now. */
  readonly #list: Int32Array;
  /** By row of the pass: where its entries begin in the list, and how many they are. */
  readonly #firstEntry: Int32Array;
  readonly #entryCount: Int32Array;
  #entries = 0;

  constructor(
    blueprint: PartitionPlan,
    index: number,
    order: PassDescriptor,
    kernels: KernelExports,
    at: ThreadMemory,
    memory: SharedArrayBuffer,
  ) {
    this.#blueprint = blueprint;
    this.#index = index;
    this.#order = order;
    this.#kernels = kernels;
    this.#at = at;
    const ints = (at.pageListBytes / Int32Array.BYTES_PER_ELEMENT) | 0;
    this.#list = new Int32Array(memory, at.pageList, ints);
    this.#firstEntry = new Int32Array(blueprint.maxRows);
    this.#entryCount = new Int32Array(blueprint.maxRows);
  }

  /** Floats that attend() writes for a token. */
  get partialFloats(): number {
    const { heads, headLength } = this.#blueprint.shape;
    return heads * (headLength + partialTail);
  }

  /** Before the first layer: lists the pages of every row. A mixture's first pass has layers of its own. */
  beginPass(): void {
    const order = this.#order;
    const { blockTokens, threads, shape } = this.#blueprint;
    const { kvPageBytes, kvLayerBytes } = this.#at;
    const kv = this.#at.kv + (order.isFirstPass ? shape.layers * kvLayerBytes : 0);
    let count = 0;
    for (let row = 0; row < order.rowCount; row++) {
      const firstPage = order.row(row, rowField.firstPage);
      const blocks = order.row(row, rowField.blockCount);
      this.#firstEntry[row] = count;
      for (let block = this.#index; block < blocks; block += threads) {
        this.#list[count * 2] = kv + (order.pages[firstPage + block] as number) * kvPageBytes;
        this.#list[count * 2 + 1] = block * blockTokens;
        count++;
      }
      this.#entryCount[row] = count - (this.#firstEntry[row] as number);
    }
    this.#entries = count;
  }

  /** After every layer: the same pages of the next one. */
  nextLayer(): void {
    const { kvLayerBytes } = this.#at;
    for (let i = 0; i < this.#entries; i++) this.#list[i * 2] = (this.#list[i * 2] as number) + kvLayerBytes;
  }

  /**
   * Stores the keys and values of the pass's tokens that belong into this thread's pages, and attends to all its pages.
   * `joined` has queries, keys and values of a token side by side; `out` gets partialFloats floats for each.
   *
   * Layers that see a window keep what is before it as all layers do, and only do not read it: so a sequence can be cut,
   * shared and saved anywhere, which it could not if pages outside of the window had been given up.
   */
  attend(rules: Pick<AttentionStep, "behind" | "ahead" | "scale" | "softcap">, joined: number, out: number): void {
    const { shape, blockTokens, kvType } = this.#blueprint;
    const { heads, kvHeads, headLength } = shape;
    const stride = (heads + 2 * kvHeads) * headLength;
    const behind = Math.min(rules.behind, allPositions);
    const ahead = Math.min(rules.ahead, allPositions);
    for (let row = 0; row < this.#order.rowCount; row++) {
      const firstToken = this.#order.row(row, rowField.firstToken);
      const length = this.#order.row(row, rowField.length);
      const firstPosition = this.#order.row(row, rowField.firstPosition);
      this.#store(row, joined + firstToken * stride * floatBytes, stride, length, firstPosition);
      this.#kernels.attend(
        kvType,
        this.#at.pageList + (this.#firstEntry[row] as number) * entryBytes,
        this.#entryCount[row] as number,
        blockTokens,
        joined + firstToken * stride * floatBytes,
        stride,
        length,
        firstPosition,
        heads,
        kvHeads,
        headLength,
        rules.scale,
        rules.softcap,
        behind,
        ahead,
        out + firstToken * this.partialFloats * floatBytes,
      );
    }
  }

  #store(row: number, joined: number, stride: number, length: number, firstPosition: number): void {
    const { shape, blockTokens, kvType, threads } = this.#blueprint;
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
