// Mixture: adapters that a classifier weighs for every token (X-LoRA), as the compute threads need it. Data only;
// mixture/mixture.ts makes and checks it at load.
import type { MixtureSpec } from "../../engine.ts";
import type { Matrix } from "../graph/graph-tensors.ts";

/** Ranks by site, then by matrix; 0 if the adapter does not change the matrix. */
export type AdapterRanks = readonly (readonly number[])[];

/** The options are those of the engine contract's MixtureSpec. */
export interface Mixture
  extends Pick<
    MixtureSpec,
    "rectifies" | "temperature" | "topAdapters" | "normalisesTop" | "globalWeight" | "firstPassWeight"
  > {
  readonly adapters: number;
  /** Weights per adapter and token: 1 for all matrices, or one for each layer of the classifier's outputs. */
  readonly layers: number;
  /** By site, then by matrix: its layer in the classifier's outputs. */
  readonly layerOf: readonly (readonly number[])[];
  /** By adapter, in the order in which they are stacked into one. */
  readonly ranks: readonly AdapterRanks[];
  /** The classifier's linear layers; all but the last are padded with rows of zeros to a multiple of 32. */
  readonly classifier: readonly Matrix[];
  /** Number of slots that can keep their weights; 0 = none. */
  readonly keptSlots: number;
}
