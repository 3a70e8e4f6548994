// Mixture (X-LoRA): adapters that a classifier weights separately for every token. This file defines the data that the
// compute threads need. mixture/mixture.ts creates and checks the data at load.
import type { MixtureSpec } from "../../engine.ts";
import type { Matrix } from "../graph/graph-tensors.ts";

/**
 * Ranks of an adapter, indexed by site (see adapters/sites.ts), then by matrix. Rank 0 means that the adapter does not
 * change the matrix.
 */
export type AdapterRanks = readonly (readonly number[])[];

/** Parameters of a mixture. The options have the same meaning as in MixtureSpec. */
export interface Mixture
  extends Pick<
    MixtureSpec,
    "rectifies" | "temperature" | "topAdapters" | "normalisesTop" | "globalWeight" | "firstPassWeight"
  > {
  readonly adapters: number;
  /**
   * Number of weights that the classifier computes for each adapter and token. 1 means that all matrices share one
   * weight. Otherwise the classifier computes one weight per layer.
   */
  readonly layers: number;
  /** Index of the weight that applies to each matrix, from 0 to `layers` - 1. Indexed by site, then by matrix. */
  readonly layerOf: readonly (readonly number[])[];
  /** Ranks of each adapter. All adapters are stacked into one large adapter, in this order. */
  readonly ranks: readonly AdapterRanks[];
  /**
   * The classifier's linear layers. The number of rows of each layer except the last is padded with rows of zeros to a
   * multiple of 32.
   */
  readonly classifier: readonly Matrix[];
  /** Number of slots that can keep a token's adapter weights for later tokens; 0 = none. */
  readonly keptSlots: number;
}
