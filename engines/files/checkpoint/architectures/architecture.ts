// Architecture of a checkpoint: how the names, fields and tensors of a model family in Hugging Face's format map to
// those of a GGUF file. One value for each architecture name of GGUF; mostly tables.
import type { Config, JsonObject } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import type { RowSource } from "../row-source.ts";

/** Values of a tensor with their shape: dimensions, columns first. */
export interface Shaped {
  readonly rows: RowSource;
  readonly shape: readonly number[];
}

/** Change of a tensor. Its shape has the columns first. */
export type Change = (tensor: Shaped, config: Config) => Shaped;

export interface TensorTarget {
  /** Name in the GGUF file without its last part; `{l}` is the layer. */
  readonly to: string;
  readonly change?: Change;
  /** Last part of the name; by default that of the tensor, or `.weight` if it has none. */
  readonly suffix?: string;
}

/**
 * Targets of a tensor by its name. Names omit the prefixes of the whole model (`model.`) and the last part (`.weight`,
 * `.bias`); `{l}` is the layer, `{e}` the expert. Tensors that differ only in `{e}` are stacked. Null: the tensor is
 * not used.
 */
export type TensorTable = Readonly<Record<string, string | TensorTarget | readonly TensorTarget[] | null>>;

export interface CheckpointArchitecture {
  /** Value of general.architecture. */
  readonly name: string;
  /** Names in the field `architectures` of config.json. */
  readonly classes: readonly string[];
  /** Whether a model with one of the classes has this architecture; if it is not given, each has. */
  readonly applies?: (config: Config) => boolean;
  /** Values of fields that config.json may leave out, as the official class has them. */
  readonly defaults?: JsonObject;
  /** Further values of this kind, which follow from other fields. */
  readonly computedDefaults?: (config: Config) => JsonObject;
  /** Prefixes of tensor names that are removed, before `model.`. */
  readonly prefixes?: readonly string[];
  /** Adds the pairs that only this architecture has, and checks fields that no pair can express. */
  readonly addPairs?: (config: Config, pairs: Pairs) => void;
  readonly tensors: TensorTable;
  /** Returns tensors that are in no file. */
  readonly addTensors?: (config: Config) => readonly (Shaped & { readonly name: string })[];
  /** Whether layers beyond block_count are left out: they predict further tokens, which the engines do not use. */
  readonly leavesOutExtraLayers?: boolean;
  /** Whether the model may have slices (matformer/). */
  readonly hasSlices?: boolean;
  /** Returns what the user should know of the model that the engines compute. */
  readonly notes?: (config: Config) => readonly string[];
  /** Whether the model may compute embeddings: its modules are read. */
  readonly pools?: boolean;
  /** Whether dense layers may follow the pooling. */
  readonly hasDenseLayers?: boolean;
  /** Whether the model's prompts belong to task adapters, which are left out. */
  readonly adaptsByTask?: boolean;
  /** Whether each token has a vector of its own, by a matrix among the tensors (ColBERT). */
  readonly isMultiVector?: boolean;
}
