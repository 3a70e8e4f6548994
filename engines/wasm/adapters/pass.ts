// Owns what a compute thread adds to its products in a pass for the adapters of the pass's rows. Before a place's products it
// multiplies A with their input, each thread some of the ranks, which a mixture then weighs; all exchange what came of it; then
// it adds B times that to the thread's own rows. In a pass without adapters nothing of this happens.

import type { KernelExports } from "../load/kernel-exports.ts";
import type { MixtureWeights } from "../mixture/weights.ts";
import type { DividedGraph, PartitionPlan, Share } from "../plan/partition-plan.ts";
import { type PassDescriptor, rowField } from "../plan/pass-descriptor.ts";
import type { AllGather } from "../threads/all-gather.ts";
import { placeBytes, rankShare } from "./layout.ts";
import { type AdapterPlace, adapterPlaces, placeMatrices } from "./places.ts";

const floatBytes = 4;
/** Address, first of the list, count. */
const groupInts = 3;

/** Scratch in the thread's memory. */
export interface AdapterScratch {
  /** Groups, then the list they point into: of the pass's tokens, and of those whose logits are wanted. */
  readonly tokens: number;
  readonly outputs: number;
  /** What each thread has made of its ranks, `slabBytes` apart. */
  readonly slabs: number;
  readonly slabBytes: number;
  /** The ranks of one matrix for two tokens. */
  readonly ranks: number;
}

export function adapterSlabBytes({ passTokens, adapterRank, threads }: PartitionPlan): number {
  return passTokens * rankShare(placeMatrices * adapterRank, threads) * floatBytes;
}

export function layOutScratch(blueprint: PartitionPlan, take: (bytes: number) => number): AdapterScratch | null {
  const { adapterRank, maxRows, passTokens, maxOutputs, threads } = blueprint;
  if (adapterRank === 0) return null;
  const slabBytes = adapterSlabBytes(blueprint);
  const list = (length: number) => take((maxRows * groupInts + length) * Int32Array.BYTES_PER_ELEMENT);
  return {
    tokens: list(passTokens),
    outputs: list(maxOutputs),
    slabs: take(slabBytes * threads),
    slabBytes,
    ranks: take(2 * adapterRank * floatBytes),
  };
}

/** What a compute thread lends. */
export interface AdapterPassParts {
  readonly blueprint: PartitionPlan;
  readonly divided: DividedGraph;
  readonly index: number;
  readonly order: PassDescriptor;
  readonly kernels: KernelExports;
  readonly scratch: AdapterScratch;
  readonly memory: SharedArrayBuffer;
  /** Of the slabs in the scratch. */
  readonly exchange: AllGather;
  /** Of a mixture, which is the one adapter of all rows; null where there is none. */
  readonly weights: MixtureWeights | null;
}

export class AdapterPass {
  readonly #places: readonly AdapterPlace[];
  readonly #order: PassDescriptor;
  readonly #kernels: KernelExports;
  readonly #scratch: AdapterScratch;
  readonly #ownSlab: number;
  readonly #exchange: AllGather;
  readonly #weights: MixtureWeights | null;
  readonly #tokens: AdapterList;
  readonly #outputs: AdapterList;
  /** By token of the pass: its adapter's group, or -1. */
  readonly #groupOf: Int32Array;
  /** By group. */
  readonly #addresses: Int32Array;
  #groupCount = 0;
  /** Of the place under way: what its inputs belong to, and how many ranks of each the thread with most of them computes. */
  #list: AdapterList;
  #width = 0;

  constructor({ blueprint, divided, index, order, kernels, scratch, memory, exchange, weights }: AdapterPassParts) {
    const { maxRows, passTokens, maxOutputs } = blueprint;
    this.#places = adapterPlaces(divided);
    this.#order = order;
    this.#kernels = kernels;
    this.#scratch = scratch;
    this.#ownSlab = scratch.slabs + index * scratch.slabBytes;
    this.#exchange = exchange;
    this.#weights = weights;
    this.#tokens = new AdapterList(memory, scratch.tokens, maxRows, passTokens);
    this.#outputs = new AdapterList(memory, scratch.outputs, maxRows, maxOutputs);
    this.#list = this.#tokens;
    this.#groupOf = new Int32Array(passTokens);
    this.#addresses = new Int32Array(maxRows);
  }

  /** Before the first layer: groups the pass's tokens by adapter. */
  begin(): void {
    const order = this.#order;
    this.#groupCount = 0;
    if (this.#weights && !this.#weights.begin()) return;
    for (let row = 0; row < order.rowCount; row++) {
      const first = order.row(row, rowField.firstToken);
      this.#groupOf.fill(
        this.#groupFor(order.row(row, rowField.adapter)),
        first,
        first + order.row(row, rowField.length),
      );
    }
    if (this.#groupCount === 0) return;
    this.#tokens.fill(this.#addresses, this.#groupCount, this.#groupOf, null, order.tokenCount);
    this.#outputs.fill(this.#addresses, this.#groupCount, this.#groupOf, order.outputs, order.outputCount);
  }

  /** A times the inputs of a place's products, at `x`: one for each token of the pass, or for each output at the last place. */
  reduce(place: number, x: number): void {
    if (this.#groupCount === 0) return;
    const { columns } = this.#places[place] as AdapterPlace;
    this.#list = place === this.#places.length - 1 ? this.#outputs : this.#tokens;
    const { groups, entries } = this.#list;
    const at = place * placeBytes;
    const out = this.#ownSlab;
    this.#width = this.#kernels.reduceAdapters(at, groups, this.#groupCount, entries, x, columns, columns, out);
    this.#weights?.apply(place, out, this.#list.length, this.#width);
  }

  /** Gives the others what reduce() made, and takes theirs. Behind the place's own products: less is waited for then. */
  exchange(): void {
    if (this.#groupCount === 0 || this.#width === 0) return;
    const bytes = this.#list.length * this.#width * floatBytes;
    this.#exchange.slabs(() => bytes);
  }

  /** Adds B times what was exchanged to what this thread's share of the place's products has at `out`. */
  add(place: number, { pieces, stride }: Share, out: number): void {
    if (this.#groupCount === 0 || this.#width === 0) return;
    const { matrices } = this.#places[place] as AdapterPlace;
    const { groups, entries } = this.#list;
    const { slabs, slabBytes, ranks } = this.#scratch;
    for (const { matrix, padded, slabColumn } of pieces) {
      this.#kernels.addAdapters(
        place * placeBytes,
        matrices.indexOf(matrix),
        groups,
        this.#groupCount,
        entries,
        slabs,
        slabBytes,
        this.#width,
        ranks,
        padded,
        out + slabColumn * floatBytes,
        stride,
      );
    }
  }

  /** Number of an adapter's group in the pass, a new one where it has none yet; -1 for the base model. */
  #groupFor(address: number): number {
    if (address === 0) return -1;
    let group = 0;
    while (group < this.#groupCount && this.#addresses[group] !== address) group++;
    if (group === this.#groupCount) this.#addresses[this.#groupCount++] = address;
    return group;
  }
}

/** Rows of a product's input that have adapters, by adapter, as the kernels read them. */
class AdapterList {
  /** Addresses of what the kernels read. */
  readonly groups: number;
  readonly entries: number;
  /** Rows in the list. */
  length = 0;
  readonly #groups: Int32Array;
  readonly #entries: Int32Array;

  constructor(memory: SharedArrayBuffer, at: number, maxGroups: number, maxLength: number) {
    this.groups = at;
    this.entries = at + maxGroups * groupInts * Int32Array.BYTES_PER_ELEMENT;
    this.#groups = new Int32Array(memory, this.groups, maxGroups * groupInts);
    this.#entries = new Int32Array(memory, this.entries, maxLength);
  }

  /** Lists the rows 0..count whose token has a group; row i is token tokens[i], or i. */
  fill(addresses: Int32Array, groupCount: number, groupOf: Int32Array, tokens: Int32Array | null, count: number): void {
    let length = 0;
    for (let group = 0; group < groupCount; group++) {
      const at = group * groupInts;
      this.#groups[at] = addresses[group] as number;
      this.#groups[at + 1] = length;
      for (let row = 0; row < count; row++) {
        if (groupOf[tokens ? (tokens[row] as number) : row] === group) this.#entries[length++] = row;
      }
      this.#groups[at + 2] = length - (this.#groups[at + 1] as number);
    }
    this.length = length;
  }
}
