// Mixture (X-LoRA): adapters that a classifier weights separately for every token. This is the description that the
// compute threads need. Data only; mixture/mixture.ts creates and checks it at load.
import type { MixtureSpec } from "../../engine.ts";
import type { Matrix } from "../graph/graph-tensors.ts";

/** Ranks of an adapter, indexed by site, then by matrix. The rank is 0 if the adapter does not change the matrix. */
export type AdapterRanks = readonly (readonly number[])[];

/** Parameters of a mixture. The options have the meaning that MixtureSpec gives them. */
export interface Mixture
  extends Pick<
    MixtureSpec,
    "rectifies" | "temperature" | "topAdapters" | "normalisesTop" | "globalWeight" | "firstPassWeight"
  > {
  readonly adapters: number;
  /**
   * Number of weights per adapter and token: 1 for all matrices together, or one for each layer of the classifier's
   * outputs.
   */
  readonly layers: number;
  /** Indexed by site, then by matrix: the layer of the classifier's outputs that has the matrix's weights. */
  readonly layerOf: readonly (readonly number[])[];
  /** Ranks of each adapter, in the order in which the adapters are stacked into one. */
  readonly ranks: readonly AdapterRanks[];
  /** The classifier's linear layers. All but the last are padded with rows of zeros to a multiple of 32. */
  readonly classifier: readonly Matrix[];
  /** Number of slots that can keep a token's adapter weights for later tokens; 0 = none. */
  readonly keptSlots: number;
}
