// Adapter pass: the adapters' part of a pass (one run of the model) on one compute thread. A site is a group of
// matrices with the same input (sites.ts). Before the products of a site, the thread multiplies its share of A's rows
// by this input. In an X-LoRA mixture, the results are then multiplied by the adapter weights. All threads gather the
// results, and each thread adds B times the results to its own rows. A pass without adapters skips all of this.

import type { KernelExports } from "../load/kernel-exports.ts";
import type { MixtureWeights } from "../mixture/weights.ts";
import type { DividedGraph, PartitionPlan, Share } from "../plan/partition-plan.ts";
import { type PassDescriptor, rowField } from "../plan/pass-descriptor.ts";
import type { AllGather } from "../threads/all-gather.ts";
import { rankShare, siteBytes } from "./layout.ts";
import { type AdapterSite, adapterSites, siteMatrices } from "./sites.ts";

const floatBytes = 4;
/**
 * Number of integers that describe a group of tokens with the same adapter: adapter address, start in the token list,
 * number of tokens.
 */
const groupInts = 3;

/** Addresses of the scratch memory for adapters in the thread's memory. */
export interface AdapterScratch {
  /**
   * Addresses of two AdapterLists. Each has the groups of tokens with the same adapter, then the list of these tokens.
   * `tokens`: all tokens of the pass. `outputs`: only the output tokens.
   */
  readonly tokens: number;
  readonly outputs: number;
  /** Address of the slabs. Each slab has one thread's products with A. Slabs begin `slabBytes` bytes apart. */
  readonly slabs: number;
  readonly slabBytes: number;
  /**
   * Address of the scratch memory of addAdapters(), which holds two tokens' products with A for the ranks of one
   * matrix.
   */
  readonly ranks: number;
}

export function adapterSlabBytes({ passTokens, adapterRank, threads }: PartitionPlan): number {
  return passTokens * rankShare(siteMatrices * adapterRank, threads) * floatBytes;
}

export function layOutScratch(plan: PartitionPlan, take: (bytes: number) => number): AdapterScratch | null {
  const { adapterRank, maxRows, passTokens, maxOutputs, threads } = plan;
  if (adapterRank === 0) return null;
  const slabBytes = adapterSlabBytes(plan);
  const list = (length: number) => take((maxRows * groupInts + length) * Int32Array.BYTES_PER_ELEMENT);
  return {
    tokens: list(passTokens),
    outputs: list(maxOutputs),
    slabs: take(slabBytes * threads),
    slabBytes,
    ranks: take(2 * adapterRank * floatBytes),
  };
}

/** Parts of the compute thread that the adapters use. */
export interface AdapterPassParts {
  readonly plan: PartitionPlan;
  readonly divided: DividedGraph;
  readonly index: number;
  readonly pass: PassDescriptor;
  readonly kernels: KernelExports;
  readonly scratch: AdapterScratch;
  readonly memory: SharedArrayBuffer;
  /** Exchanges the slabs of `scratch` (each thread's products with A) between the threads. */
  readonly allGather: AllGather;
  /**
   * Adapter weights of an X-LoRA mixture; null if the model is not an X-LoRA mixture. All rows of a mixture use one
   * stacked adapter.
   */
  readonly weights: MixtureWeights | null;
}

export class AdapterPass {
  readonly #sites: readonly AdapterSite[];
  readonly #pass: PassDescriptor;
  readonly #kernels: KernelExports;
  readonly #scratch: AdapterScratch;
  readonly #ownSlab: number;
  readonly #allGather: AllGather;
  readonly #weights: MixtureWeights | null;
  readonly #tokens: AdapterList;
  readonly #outputs: AdapterList;
  /** For each token of the pass: index of its adapter's group, or -1 if the token uses the base model. */
  readonly #groupOf: Int32Array;
  /** For each group: the address of its adapter. */
  readonly #addresses: Int32Array;
  #groupCount = 0;
  /**
   * Data of the current site (a group of matrices with the same input). `#list` has the site's input rows that have
   * adapters. `#width` is the number of floats per input row in a slab (the products of one thread): the largest number
   * of rows of A in any thread.
   */
  #list: AdapterList;
  #width = 0;

  constructor({ plan, divided, index, pass, kernels, scratch, memory, allGather, weights }: AdapterPassParts) {
    const { maxRows, passTokens, maxOutputs } = plan;
    this.#sites = adapterSites(divided);
    this.#pass = pass;
    this.#kernels = kernels;
    this.#scratch = scratch;
    this.#ownSlab = scratch.slabs + index * scratch.slabBytes;
    this.#allGather = allGather;
    this.#weights = weights;
    this.#tokens = new AdapterList(memory, scratch.tokens, maxRows, passTokens);
    this.#outputs = new AdapterList(memory, scratch.outputs, maxRows, maxOutputs);
    this.#list = this.#tokens;
    this.#groupOf = new Int32Array(passTokens);
    this.#addresses = new Int32Array(maxRows);
  }

  /** Groups the tokens of the pass by adapter. Called before the first layer. */
  begin(): void {
    const pass = this.#pass;
    this.#groupCount = 0;
    if (this.#weights && !this.#weights.begin()) return;
    for (let row = 0; row < pass.rowCount; row++) {
      const first = pass.row(row, rowField.firstToken);
      this.#groupOf.fill(
        this.#groupFor(pass.row(row, rowField.adapter)),
        first,
        first + pass.row(row, rowField.length),
      );
    }
    if (this.#groupCount === 0) return;
    this.#tokens.fill(this.#addresses, this.#groupCount, this.#groupOf, null, pass.tokenCount);
    this.#outputs.fill(this.#addresses, this.#groupCount, this.#groupOf, pass.outputs, pass.outputCount);
  }

  /**
   * Multiplies the matrices A of the adapters by the input of a site (a group of matrices with the same input). The
   * input is at `x`: one row for each token of the pass or, at the last site, one row for each output token.
   */
  reduce(site: number, x: number): void {
    if (this.#groupCount === 0) return;
    const { columns } = this.#sites[site] as AdapterSite;
    this.#list = site === this.#sites.length - 1 ? this.#outputs : this.#tokens;
    const { groups, entries } = this.#list;
    const at = site * siteBytes;
    const out = this.#ownSlab;
    this.#width = this.#kernels.reduceAdapters(at, groups, this.#groupCount, entries, x, columns, columns, out);
    this.#weights?.apply(site, out, this.#list.length, this.#width);
  }

  /**
   * Gathers the results of reduce() from all threads. Called after the products of the site's own matrices, because
   * other threads are then more likely to have finished reduce().
   */
  gather(): void {
    if (this.#groupCount === 0 || this.#width === 0) return;
    const bytes = this.#list.length * this.#width * floatBytes;
    this.#allGather.slabs(() => bytes);
  }

  /**
   * Second half of the adapters' products: multiplies B by the gathered results of A, and adds this to `out`. There are the outputs of
   * the site's base matrices, for the matrix rows that this thread computes.
   */
  add(site: number, { pieces, stride }: Share, out: number): void {
    if (this.#groupCount === 0 || this.#width === 0) return;
    const { matrices } = this.#sites[site] as AdapterSite;
    const { groups, entries } = this.#list;
    const { slabs, slabBytes, ranks } = this.#scratch;
    for (const { matrix, padded, slabColumn } of pieces) {
      this.#kernels.addAdapters(
        site * siteBytes,
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

  /**
   * Returns the index of an adapter's group in the pass, and creates the group if needed. Returns -1 for address 0,
   * which means the base model.
   */
  #groupFor(address: number): number {
    if (address === 0) return -1;
    let group = 0;
    while (group < this.#groupCount && this.#addresses[group] !== address) group++;
    if (group === this.#groupCount) this.#addresses[this.#groupCount++] = address;
    return group;
  }
}

/** Input rows that have adapters, grouped by adapter, in the format of the kernels. */
class AdapterList {
  /** Address of the list of groups. `entries` is the address of the list of rows. The kernels read both lists. */
  readonly groups: number;
  readonly entries: number;
  /** Number of rows in the list. */
  length = 0;
  readonly #groups: Int32Array;
  readonly #entries: Int32Array;

  constructor(memory: SharedArrayBuffer, at: number, maxGroups: number, maxLength: number) {
    this.groups = at;
    this.entries = at + maxGroups * groupInts * Int32Array.BYTES_PER_ELEMENT;
    this.#groups = new Int32Array(memory, this.groups, maxGroups * groupInts);
    this.#entries = new Int32Array(memory, this.entries, maxLength);
  }

  /**
   * Fills the list with those of the first `count` rows whose token has a group. Row i belongs to token tokens[i], or
   * to token i if `tokens` is null.
   */
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
