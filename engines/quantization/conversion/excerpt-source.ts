// Excerpt of a model source: the first layers and the first tokens of the vocabulary, as a source that can be converted. Used to measure
// the speed of a GGUF model or a checkpoint in other number types. Its output is meaningless.
import { ServerError } from "../../../runtime/errors.ts";
import { sliced } from "../../files/checkpoint/row-changes.ts";
import { type ExcerptCut, excerptCut, isKept, keptShape } from "../../files/gguf/excerpt.ts";
import type { TypedValue } from "../../files/gguf/typed-value.ts";
import type { ModelSource, SourceTensor } from "./model-source.ts";

/**
 * Returns an excerpt of at most `maxWeights` weights, but at least one layer. A smaller model is kept whole. Throws `unsupported`
 * for a model without layers or without token embeddings.
 */
export function excerptSource(source: ModelSource, maxWeights: number): ModelSource {
  const architecture = textOf(source.pairs.get("general.architecture"));
  const layers = Number(source.pairs.get(`${architecture}.block_count`)?.value);
  const cut = excerptCut(source.tensors, layers, maxWeights);
  if (cut === null) throw new ServerError("unsupported", "the model has no layers and token embeddings to measure");
  return {
    files: source.files,
    pairs: new Map([...source.pairs].flatMap(([key, value]) => keptPair(key, value, architecture, cut))),
    tensors: source.tensors.flatMap((tensor) => keptTensor(tensor, cut)),
  };
}

function textOf(value: TypedValue | undefined): string {
  return value?.type === "string" ? value.value : "";
}

function keptTensor(tensor: SourceTensor, cut: ExcerptCut): SourceTensor[] {
  const shape = keptShape(tensor, cut);
  if (shape === null) return [];
  const { values } = tensor;
  const rows = shape.slice(1).reduce((product, length) => product * length, 1);
  return [{ ...tensor, shape, values: sliced(values, 0, rows) }];
}

function keptPair(key: string, value: TypedValue, architecture: string, cut: ExcerptCut): [string, TypedValue][] {
  const { layers, keptLayers, tokens, keptTokens } = cut;
  if (key === `${architecture}.block_count`) return [[key, { type: "u32", value: keptLayers }]];
  if (key === `${architecture}.vocab_size`) return [[key, { type: "u32", value: keptTokens }]];
  // As in writeExcerpt(): a model may have more DeepStack vectors than the excerpt has layers.
  if (key === `${architecture}.n_deepstack_layers`) return [[key, { type: "u32", value: 0 }]];
  if (value.type !== "array") return isKept(key) ? [[key, value]] : [];
  const { length } = value.value;
  if (key.startsWith(`${architecture}.`) && length === layers) return [[key, shortened(value, keptLayers)]];
  if (key.startsWith("tokenizer.ggml.") && length === tokens) return [[key, shortened(value, keptTokens)]];
  // Merges may name tokens that are not kept. Without merges no text can be encoded, which a measurement does not need.
  return [[key, key === "tokenizer.ggml.merges" && keptTokens < tokens ? shortened(value, 0) : value]];
}

function shortened({ of, value }: TypedValue & { readonly type: "array" }, length: number): TypedValue {
  return { type: "array", of, value: value.slice(0, length) } as TypedValue;
}
