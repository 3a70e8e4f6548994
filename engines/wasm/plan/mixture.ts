// Mixture: adapters that a classifier weighs for every token (X-LoRA), as the compute threads need it. Data only;
// mixture/mixture.ts makes and checks it at load.
import type { MixtureSpec } from "../../engine.ts";
import type { Matrix } from "../graph/graph-tensors.ts";

/** Ranks by place, then by matrix; 0 where the adapter leaves a matrix as it is. */
export type AdapterRanks = readonly (readonly number[])[];

/** The rules are those of the contract. */
export interface Mixture
  extends Pick<
    MixtureSpec,
    "rectifies" | "temperature" | "topAdapters" | "normalisesTop" | "globalWeight" | "firstPassWeight"
  > {
  readonly adapters: number;
  /** Weights an adapter has for a token: one for all matrices, or one a layer of the classifier's outputs. */
  readonly layers: number;
  /** Layer in those outputs of each matrix, by place. */
  readonly layerOf: readonly (readonly number[])[];
  /** By adapter. They are stacked into one, in this order. */
  readonly ranks: readonly AdapterRanks[];
  /** Its linear layers; those before the last have rows of zeros at the end, up to a multiple of 32. */
  readonly classifier: readonly Matrix[];
  /** Slots that can keep their weights. */
  readonly keptSlots: number;
}
