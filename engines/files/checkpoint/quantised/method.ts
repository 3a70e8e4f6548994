// Method of quantisation: how the tensors of a quantised matrix are found and described.
import { ServerError } from "../../../../runtime/errors.ts";
import { quote } from "../../gguf/invalid-file.ts";
import type { ModelTensors, ShardTensor } from "../../safetensors/shards.ts";
import type { Config } from "../config.ts";
import type { StoredRows } from "../row-source.ts";
import type { SourceTensor } from "../tensor-map.ts";
import { storedRows } from "./plain.ts";

/** Tensors of a checkpoint that the quantisation method has not taken yet. */
export class OpenTensors {
  readonly model: ModelTensors;
  readonly #open: Map<string, ShardTensor>;

  constructor(model: ModelTensors) {
    this.model = model;
    this.#open = new Map(model.tensors);
  }

  get rest(): readonly ShardTensor[] {
    return [...this.#open.values()];
  }

  /** Returns the names that end with `ending`, without this ending. */
  stems(ending: string): readonly string[] {
    return [...this.#open.keys()].filter((name) => name.endsWith(ending)).map((name) => name.slice(0, -ending.length));
  }

  peek(name: string): ShardTensor | undefined {
    return this.#open.get(name);
  }

  /** Removes a tensor and returns it. Throws if it is missing. */
  take(name: string): ShardTensor {
    const found = this.takeIfThere(name);
    if (found) return found;
    throw this.invalid(name, "it is missing");
  }

  takeIfThere(name: string): ShardTensor | undefined {
    const found = this.#open.get(name);
    this.#open.delete(name);
    return found;
  }

  /** Removes a tensor and returns its rows. Throws if it is missing or has another shape; null in `shape` = any length. */
  takeRows(name: string, shape: readonly (number | null)[]): StoredRows {
    const tensor = this.take(name);
    const isFitting =
      tensor.shape.length === shape.length && shape.every((length, i) => length === null || length === tensor.shape[i]);
    if (isFitting) return this.rows(tensor);
    const expected = shape.map((length) => length ?? "any").join(" x ");
    throw this.invalid(name, `it is ${tensor.shape.join(" x ")}; expected ${expected}`);
  }

  rows(tensor: ShardTensor): StoredRows {
    return storedRows(tensor, this.model);
  }

  /** Removes the tensors whose names have one of these endings. */
  drop(...endings: readonly string[]): void {
    for (const name of this.#open.keys()) if (endings.some((ending) => name.endsWith(ending))) this.#open.delete(name);
  }

  invalid(name: string, problem: string): ServerError {
    const file = this.model.files[this.model.tensors.get(name)?.file ?? 0];
    return new ServerError(
      "model_file_invalid",
      `${file}: the tensor ${quote(name)} does not fit the model's quantisation: ${problem}; fetch the model again`,
    );
  }
}

/**
 * Returns the matrices that the quantised tensors stand for, and removes these tensors from `tensors`. `settings`: quantization_config.
 * Throws `model_file_invalid` or `unsupported`, which name the tensor or the field.
 */
export type Method = (tensors: OpenTensors, settings: Config) => Promise<readonly SourceTensor[]>;

/** Returns the GGUF type number whose precision is about that of a matrix with the given scales: BF16 or F16. */
export function typeLike(scales: StoredRows): number {
  return scales.type === "BF16" ? 30 : 1;
}
