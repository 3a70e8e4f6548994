// Adapter weights of an X-LoRA mixture on one compute thread: the weight of each adapter for each token. The weights
// are computed from the classifier's outputs. They scale this thread's products with the LoRA matrix A of the stacked
// adapter, before the products with B. All threads compute the same weights.
import { stackedRanks } from "../adapters/file.ts";
import { layOutAdapter, type SiteLayout } from "../adapters/layout.ts";
import type { AdapterSite } from "../adapters/sites.ts";
import type { Mixture } from "../plan/mixture.ts";
import type { PartitionPlan } from "../plan/partition-plan.ts";
import { type PassDescriptor, rowField } from "../plan/pass-descriptor.ts";

const floatBytes = 4;

export interface MixtureWeightsParts {
  readonly plan: Pick<PartitionPlan, "passTokens" | "threads">;
  readonly mixture: Mixture;
  readonly sites: readonly AdapterSite[];
  readonly index: number;
  readonly pass: PassDescriptor;
  /** View of the whole memory of the thread. */
  readonly floats: Float32Array;
}

export class MixtureWeights {
  readonly #mixture: Mixture;
  readonly #pass: PassDescriptor;
  readonly #floats: Float32Array;
  /** Number of floats in a token's weights: [layer][adapter]. */
  readonly #stride: number;
  /**
   * Weights of each token of the pass, followed by the kept weights of each slot and by the constant weights of the
   * first pass.
   */
  readonly #table: Float32Array;
  readonly #firstKept: number;
  readonly #constant: number;
  /** For each token of the pass: start of its weights in the table. */
  readonly #start: Int32Array;
  /**
   * For each site (a group of matrices with the same input) and each row of the LoRA matrix A that this thread
   * computes: index of the row's weight among the weights of a token.
   */
  readonly #weightOf: readonly Int32Array[];
  /** Outputs of the classifier for the current layer, one per adapter, while they are converted to weights. */
  readonly #values: Float64Array;
  readonly #counts: Uint8Array;

  constructor({ plan, mixture, sites, index, pass, floats }: MixtureWeightsParts) {
    const { passTokens, threads } = plan;
    const { adapters, layers, keptSlots, firstPassWeight, globalWeight } = mixture;
    this.#mixture = mixture;
    this.#pass = pass;
    this.#floats = floats;
    this.#stride = layers * adapters;
    this.#firstKept = passTokens * this.#stride;
    this.#constant = this.#firstKept + keptSlots * this.#stride;
    this.#table = new Float32Array(this.#constant + this.#stride);
    this.#table.fill(firstPassWeight * globalWeight, this.#constant);
    this.#start = new Int32Array(passTokens);
    const layout = layOutAdapter(sites, stackedRanks(mixture.ranks), index, threads);
    this.#weightOf = layout.sites.map((site, number) => weightOfRows(site, number, mixture, index));
    this.#values = new Float64Array(adapters);
    this.#counts = new Uint8Array(adapters);
  }

  /**
   * Selects the weights of each token of the pass. Called before the first layer. Returns false if no adapter has a
   * weight other than 0 in this pass.
   */
  begin(): boolean {
    const pass = this.#pass;
    const { isFirstPass } = pass;
    if (isFirstPass && this.#mixture.firstPassWeight === 0) return false;
    for (let row = 0; row < pass.rowCount; row++) {
      const first = pass.row(row, rowField.firstToken);
      const kept = pass.row(row, rowField.kept);
      const end = first + pass.row(row, rowField.length);
      for (let token = first; token < end; token++) {
        if (isFirstPass) this.#start[token] = this.#constant;
        else this.#start[token] = kept > 0 ? this.#keptBy(kept) : token * this.#stride;
      }
    }
    return true;
  }

  /**
   * Computes the weights from the classifier's outputs, and stores them for slots that keep weights. Called at the end
   * of the first pass. `outputs` is the address of the outputs, token by token.
   */
  take(outputs: number): void {
    const pass = this.#pass;
    const { adapters } = this.#mixture;
    const from = outputs / floatBytes;
    const end = pass.tokenCount * this.#stride;
    for (let at = 0; at < end; at += adapters) this.#weigh(from + at, at);
    for (let row = 0; row < pass.rowCount; row++) {
      const keeps = pass.row(row, rowField.keeps);
      if (keeps === 0) continue;
      const last = pass.row(row, rowField.firstToken) + pass.row(row, rowField.length) - 1;
      this.#table.copyWithin(this.#keptBy(keeps), last * this.#stride, (last + 1) * this.#stride);
    }
  }

  /**
   * Multiplies the products with the LoRA matrix A at a site (a group of matrices with the same input) by the adapter
   * weights. The products have `count` rows, from address `reduced` on, `width` floats apart. Row i belongs to token i
   * of the pass, because all tokens use the stacked adapter. At the last site, the output matrix, row i belongs to
   * output token i.
   */
  apply(site: number, reduced: number, count: number, width: number): void {
    const weightOf = this.#weightOf[site] as Int32Array;
    const isOutput = site === this.#weightOf.length - 1;
    const floats = this.#floats;
    const table = this.#table;
    for (let i = 0; i < count; i++) {
      const start = this.#start[isOutput ? (this.#pass.outputs[i] as number) : i] as number;
      const at = reduced / floatBytes + i * width;
      for (let row = 0; row < weightOf.length; row++) {
        const weight = table[start + (weightOf[row] as number)] as number;
        floats[at + row] = (floats[at + row] as number) * weight;
      }
    }
  }

  #keptBy(slotPlusOne: number): number {
    return this.#firstKept + (slotPlusOne - 1) * this.#stride;
  }

  /** Converts the classifier's outputs of one layer, at `from`, to weights in the table, at `to`. */
  #weigh(from: number, to: number): void {
    const { adapters, temperature, topAdapters, normalisesTop, globalWeight } = this.#mixture;
    const values = this.#values;
    for (let i = 0; i < adapters; i++) values[i] = this.#floats[from + i] as number;
    this.#counts.fill(1);
    if (temperature !== null) this.#softmax(temperature);
    if (topAdapters !== null) this.#chooseTop(topAdapters);
    if (normalisesTop) this.#softmax(1);
    for (let i = 0; i < adapters; i++) {
      this.#table[to + i] = this.#counts[i] === 1 ? (values[i] as number) * globalWeight : 0;
    }
  }

  /** Replaces those values whose #counts[i] is 1 by their softmax. The other values become meaningless. */
  #softmax(temperature: number): void {
    const values = this.#values;
    let largest = Number.NEGATIVE_INFINITY;
    for (let i = 0; i < values.length; i++) {
      if (this.#counts[i] === 1) largest = Math.max(largest, (values[i] as number) / temperature);
    }
    let sum = 0;
    for (let i = 0; i < values.length; i++) {
      if (this.#counts[i] !== 1) continue;
      values[i] = Math.exp((values[i] as number) / temperature - largest);
      sum += values[i] as number;
    }
    for (let i = 0; i < values.length; i++) values[i] = (values[i] as number) / sum;
  }

  /**
   * Sets #counts to 1 for the `count` largest values and to 0 for all other values. If values are equal, the lower
   * index is chosen.
   */
  #chooseTop(count: number): void {
    const values = this.#values;
    for (let i = 0; i < values.length; i++) {
      const own = values[i] as number;
      let before = 0;
      for (let j = 0; j < values.length; j++) {
        const other = values[j] as number;
        if (other > own || (other === own && j < i)) before++;
      }
      this.#counts[i] = before < count ? 1 : 0;
    }
  }
}

/**
 * Returns, for each row of A on this thread, the index of the row's weight. Padding rows of a tile may have any index,
 * because their products are 0.
 */
function weightOfRows(
  { share, ownRows, matrices }: SiteLayout,
  site: number,
  mixture: Mixture,
  index: number,
): Int32Array {
  const stacked = matrices.flatMap((_, matrix) =>
    mixture.ranks.flatMap((ranks, adapter) => {
      const layer = mixture.layerOf[site]?.[matrix] ?? 0;
      return Array<number>(ranks[site]?.[matrix] ?? 0).fill(layer * mixture.adapters + adapter);
    }),
  );
  return Int32Array.from({ length: ownRows }, (_, row) => stacked[index * share + row] ?? 0);
}
