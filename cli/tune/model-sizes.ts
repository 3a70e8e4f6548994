// Sizes of a model that determine its memory: layers, widths and context length, from the metadata of its file.
import type { ModelSource } from "../../engines/quantization/conversion/model-source.ts";

export interface ModelSizes {
  readonly trainedContext: number;
  readonly layers: number;
  readonly width: number;
  readonly feedForward: number;
  readonly vocabSize: number;
  /** Number of elements (numbers) that one token has in the KV cache, over all layers; 0 for an encoder. */
  readonly kvElements: number;
  readonly isEncoder: boolean;
}

/** Architectures that are encoders although their files do not say so. */
const silentEncoders: ReadonlySet<string> = new Set(["gemma-embedding"]);

export function modelSizes({ pairs, tensors }: ModelSource): ModelSizes {
  const architecture = String(pairs.get("general.architecture")?.value);
  const pairAt = (key: string) => pairs.get(`${architecture}.${key}`)?.value;
  const numberOf = (key: string, fallback: number) => most(pairAt(key), fallback);
  const width = numberOf("embedding_length", 0);
  const heads = numberOf("attention.head_count", 1);
  const headLength = Math.floor(width / Math.max(heads, 1));
  const isEncoder = pairAt("attention.causal") === false || silentEncoders.has(architecture);
  const layers = numberOf("block_count", 0);
  const kvHeads = sumOverLayers(pairAt("attention.head_count_kv") ?? pairAt("attention.head_count"), layers);
  const perHead = numberOf("attention.key_length", headLength) + numberOf("attention.value_length", headLength);
  return {
    trainedContext: numberOf("context_length", 0),
    layers,
    width,
    feedForward: numberOf("feed_forward_length", 0),
    vocabSize: tensors.find(({ name }) => name === "token_embd.weight")?.shape[1] ?? 0,
    kvElements: isEncoder ? 0 : kvHeads * perHead,
    isEncoder,
  };
}

function most(value: unknown, fallback: number): number {
  if (typeof value === "number") return value;
  if (Array.isArray(value) && value.length > 0) return Math.max(...value.map(Number));
  return fallback;
}

/**
 * Returns the sum of a value over all layers. The value is a list if it differs between layers, such as the number of KV heads
 * in some models.
 */
function sumOverLayers(value: unknown, layers: number): number {
  if (Array.isArray(value)) return value.reduce((sum: number, one) => sum + Number(one), 0);
  return most(value, 1) * layers;
}
