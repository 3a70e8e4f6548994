// Architecture of a checkpoint: how the names, fields and tensors of a model family in Hugging Face's format map to
// those of a GGUF file. One value for each architecture name of GGUF; mostly tables.
import type { Config, JsonObject } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import type { RowSource } from "../row-source.ts";

/** Values of a tensor, and its shape: its dimensions, beginning with the number of columns. */
export interface Shaped {
  readonly rows: RowSource;
  readonly shape: readonly number[];
}

/** Function that converts a tensor of the checkpoint to its form in the GGUF file. */
export type Change = (tensor: Shaped, config: Config) => Shaped;

export interface TensorTarget {
  /** Name in the GGUF file without the suffix; `{l}` stands for the layer number. */
  readonly to: string;
  readonly change?: Change;
  /** Suffix of the name in the GGUF file. Default: the suffix of the checkpoint's tensor, or `.weight` if it has none. */
  readonly suffix?: string;
  /** Use only tensors of the checkpoint with this suffix; absent = any suffix. */
  readonly only?: ".weight" | ".bias";
}

/**
 * GGUF tensors, by the name of the checkpoint tensor that they are made from. Names omit the prefixes of the whole model (`model.`) and the
 * suffix (`.weight`, `.bias`); `{l}` stands for the layer number, `{e}` for the expert number. Tensors that differ only in `{e}` are
 * stacked. null = the tensor is not used.
 */
export type TensorTable = Readonly<Record<string, string | TensorTarget | readonly TensorTarget[] | null>>;

export interface CheckpointArchitecture {
  /** Name of the architecture in GGUF files: value of the key general.architecture. */
  readonly name: string;
  /** Names in the field `architectures` of config.json. */
  readonly classes: readonly string[];
  /** Whether a model of one of the classes has this architecture. Absent = every model of these classes has it. */
  readonly applies?: (config: Config) => boolean;
  /** Default values of fields that config.json may leave out, as in the model's official Python class. */
  readonly defaults?: JsonObject;
  /** Further default values, which are computed from other fields. */
  readonly computedDefaults?: (config: Config) => JsonObject;
  /** Prefixes that are removed from tensor names, before the prefix `model.` is removed. */
  readonly prefixes?: readonly string[];
  /** Adds the key/value pairs that only this architecture has, and checks fields that no pair can express. */
  readonly addPairs?: (config: Config, pairs: Pairs) => void;
  readonly tensors: TensorTable;
  /** Returns tensors that the GGUF file needs but the checkpoint's files do not have. */
  readonly addTensors?: (config: Config) => readonly (Shaped & { readonly name: string })[];
  /** Whether layers beyond block_count are left out. They are for multi-token prediction, which the engines do not use. */
  readonly leavesOutExtraLayers?: boolean;
  /** Whether the model may be a MatFormer model, from which smaller models can be sliced (matformer/). */
  readonly hasSlices?: boolean;
  /** Returns notes for the user about how the engines compute the model, for example about its memory use. */
  readonly notes?: (config: Config) => readonly string[];
  /** Whether the model may compute embeddings. If so, its modules.json is read. */
  readonly pools?: boolean;
  /** Whether dense layers may follow the pooling. */
  readonly hasDenseLayers?: boolean;
  /** Whether the model's prompts belong to task adapters. If so, the prompts and the adapters are left out. */
  readonly adaptsByTask?: boolean;
  /** Whether the model returns one vector per token (ColBERT), computed by a matrix among its tensors. */
  readonly isMultiVector?: boolean;
}
