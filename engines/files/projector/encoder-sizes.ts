// Sizes of an image encoder, and of its tiles of variable size, read from a projector file.
import type { TensorTable } from "../gguf/tensors.ts";
import type { EncoderSizes, ProjectorKind, TilingRules } from "./image-rules.ts";
import type { ProjectorKeys } from "./projector-keys.ts";

const maxSide = 512;
/**
 * Minimum and maximum number of cells per tile, for models with tiles of variable size, as in llama.cpp's mtmd. The keys
 * `image_min_pixels` and `image_max_pixels` override them. `ofFrame`: maximum for a frame of a video, as in transformers.
 */
const variableTokens = {
  qwen: { least: 8, most: 4096, ofFrame: 768 },
  pixtral: { least: 8, most: 1024, ofFrame: 1024 },
  // 280 as in transformers; mtmd has 1120, which takes minutes and gigabytes on a CPU.
  gemma4v: { least: 70, most: 280, ofFrame: 70 },
};
/** Maximum number of patches of a tile of variable size, whatever the keys say. */
const maxVariablePatches = 16_384;
const maxPixelCount = 2 ** 31 - 1;
/** Epsilon of the layer norms of Gemma 4 12B's projection of squares; no key of the file has it. */
const squareEpsilon = 1e-5;
/** Side in pixels of a window of Qwen 2.5 VL; no key of the file has it. */
const qwenWindow = 112;

export function sizesOf(keys: ProjectorKeys, projector: ProjectorKind, table: TensorTable): EncoderSizes {
  if (isQwen(projector)) return readQwenSizes(keys, projector, table);
  if (projector === "gemma4uv") return readSquareSizes(keys, table);
  return hasVariableTiles(projector) ? readMergedSizes(keys, projector, table) : readSizes(keys, projector, table);
}

export function variableSizes(
  keys: ProjectorKeys,
  projector: VariableKind,
  { patchSize, mergeSide }: Pick<EncoderSizes, "patchSize" | "mergeSide">,
): NonNullable<TilingRules["variable"]> {
  const kind = isQwen(projector) ? "qwen" : projector === "gemma4uv" ? "gemma4v" : projector;
  const { least, most, ofFrame } = variableTokens[kind];
  const unit = patchSize * mergeSide;
  const edge = projector === "pixtral" ? keys.countOrNone("preproc_image_size", 65_536) : 0;
  const given = keys.count("image_max_pixels", maxPixelCount, most * unit ** 2);
  if (given < unit ** 2) throw keys.invalid(`its image_max_pixels is ${given}; expected at least ${unit ** 2}`);
  const maxPixels = Math.min(given, maxVariablePatches * patchSize ** 2);
  const minPixels = keys.count("image_min_pixels", maxPixels, Math.min(least * unit ** 2, maxPixels));
  const maxFramePixels = Math.min(maxPixels, ofFrame * unit ** 2);
  return { unit, minPixels, maxPixels, maxFramePixels, maxEdge: edge || null };
}

/** Returns the number of patches of the largest tile of a model with tiles of variable size. */
function variablePatches(
  keys: ProjectorKeys,
  projector: VariableKind,
  sizes: Pick<EncoderSizes, "patchSize" | "mergeSide">,
): number {
  const { unit, maxPixels } = variableSizes(keys, projector, sizes);
  return Math.floor(maxPixels / unit ** 2) * sizes.mergeSide ** 2;
}

type QwenKind = Extract<ProjectorKind, `qwen${string}`>;
/** Projectors with tiles of variable size. */
type VariableKind = QwenKind | "pixtral" | "gemma4v" | "gemma4uv";

export function isQwen(projector: ProjectorKind): projector is QwenKind {
  return projector.startsWith("qwen");
}

export function hasVariableTiles(projector: ProjectorKind): projector is VariableKind {
  return isQwen(projector) || projector === "pixtral" || projector === "gemma4v" || projector === "gemma4uv";
}

function readQwenSizes(keys: ProjectorKeys, projector: QwenKind, { tensors }: TensorTable): EncoderSizes {
  const layers = keys.count("block_count", 1000);
  const stackedLayers = Array.from({ length: layers }, (_, layer) => layer).filter((layer) =>
    tensors.has(`v.deepstack.${layer}.fc1.weight`),
  );
  const patchSize = keys.count("patch_size", 64);
  const mergeSide = keys.count("spatial_merge_size", 2, 2);
  if (mergeSide !== 2) throw keys.invalid(`its clip.vision.spatial_merge_size is ${mergeSide}; expected 2`);
  const windowSide = Math.max(Math.trunc(qwenWindow / patchSize / mergeSide), 1);
  return {
    layers,
    width: keys.count("embedding_length", 65_536),
    heads: keys.count("attention.head_count", 1024),
    // Files from early converters state a length of 0.
    feedForward:
      keys.countOrNone("feed_forward_length", 262_144) || largest(tensors.get("v.blk.0.ffn_up.weight")?.shape),
    epsilon: keys.positive("attention.layer_norm_epsilon"),
    patchSize,
    patches: variablePatches(keys, projector, { patchSize, mergeSide }),
    mergeSide,
    queries: 0,
    activation: keys.activation(),
    windows: projector === "qwen2.5vl_merger" ? { side: windowSide, interval: keys.count("n_wa_pattern", 1000) } : null,
    stackedLayers,
    length: embeddingLength(keys, projector, tensors) * (1 + stackedLayers.length),
  };
}

/** Reads the sizes of an encoder with tiles of variable size whose patches are merged after the layers (Pixtral, Gemma 4). */
function readMergedSizes(
  keys: ProjectorKeys,
  projector: Exclude<VariableKind, QwenKind | "gemma4uv">,
  { tensors }: TensorTable,
): EncoderSizes {
  const mergeSide =
    projector === "pixtral" ? keys.count("spatial_merge_size", 16, 1) : keys.count("projector.scale_factor", 16, 3);
  const patchSize = keys.count("patch_size", 64);
  return {
    layers: keys.count("block_count", 1000),
    width: keys.count("embedding_length", 65_536),
    heads: keys.count("attention.head_count", 1024),
    feedForward: keys.count("feed_forward_length", 262_144),
    epsilon: keys.positive("attention.layer_norm_epsilon"),
    patchSize,
    patches: variablePatches(keys, projector, { patchSize, mergeSide }),
    mergeSide,
    queries: 0,
    // Files of Gemma 4 have no key for the activation of its code; mtmd computes quick gelu.
    activation: keys.activation(projector === "gemma4v" ? "gelu" : "quickGelu"),
    windows: null,
    stackedLayers: [],
    length: embeddingLength(keys, projector, tensors),
  };
}

/** Reads the sizes of a projection of squares of pixels: an encoder without layers, in which a square is a patch. */
function readSquareSizes(keys: ProjectorKeys, { tensors }: TensorTable): EncoderSizes {
  const patchSize = keys.count("patch_size", 64) * keys.count("projector.scale_factor", 16, 3);
  const patches = variablePatches(keys, "gemma4uv", { patchSize, mergeSide: 1 });
  return {
    ...{ layers: 0, width: keys.count("embedding_length", 65_536), heads: 1, feedForward: 0 },
    epsilon: squareEpsilon,
    ...{ patchSize, patches, mergeSide: 1, queries: 0 },
    activation: "gelu",
    windows: null,
    stackedLayers: [],
    length: embeddingLength(keys, "gemma4uv", tensors),
  };
}

function largest(lengths: readonly number[] = []): number {
  return Math.max(0, ...lengths);
}

function readSizes(
  keys: ProjectorKeys,
  projector: Exclude<ProjectorKind, VariableKind>,
  { tensors }: TensorTable,
): EncoderSizes {
  const imageSize = keys.count("image_size", 8192);
  const patchSize = keys.count("patch_size", 64);
  const side = Math.trunc(imageSize / patchSize);
  const mergeSide =
    projector === "mlp" || projector === "resampler"
      ? 1
      : keys.count("projector.scale_factor", 16, projector === "gemma3" ? 4 : undefined);
  if (imageSize % patchSize !== 0 || side > maxSide || side % mergeSide !== 0) {
    throw keys.invalid(
      `its images of ${imageSize} pixels are not whole squares of ${mergeSide} patches of ${patchSize} pixels`,
    );
  }
  const layers = keys.count("block_count", 1000);
  return {
    // LLaVA uses the hidden states before the last layer that this key counts. Files omit that layer or have it without use.
    layers: projector === "mlp" ? Math.max(layers - 1, 1) : layers,
    width: keys.count("embedding_length", 65_536),
    heads: keys.count("attention.head_count", 1024),
    feedForward: keys.count("feed_forward_length", 262_144),
    epsilon: keys.positive("attention.layer_norm_epsilon"),
    patchSize,
    // The sides of a fitted tile are rounded to whole patches, so it may have more patches than a square tile.
    patches: projector === "resampler" ? 2 * side ** 2 : side ** 2,
    mergeSide,
    queries: projector === "resampler" ? keys.queries() : 0,
    activation: keys.activation(),
    windows: null,
    stackedLayers: [],
    length: embeddingLength(keys, projector, tensors),
  };
}

/** Reads the text model's width, which is the length of a vector of an embedding, from the projector's last matrix. */
function embeddingLength(keys: ProjectorKeys, projector: ProjectorKind, tensors: TensorTable["tensors"]): number {
  const [name, dimension] = (
    {
      gemma3: ["mm.input_projection.weight", 0],
      gemma4v: ["mm.input_projection.weight", 1],
      gemma4uv: ["mm.input_projection.weight", 1],
      idefics3: ["mm.model.fc.weight", 1],
      internvl: ["mm.model.mlp.3.weight", 1],
      resampler: ["resampler.proj.weight", 1],
      pixtral: ["mm.2.weight", 1],
      mlp: [tensors.has("mm.2.weight") ? "mm.2.weight" : "mm.0.weight", 1],
      qwen2vl_merger: ["mm.2.weight", 1],
      "qwen2.5vl_merger": ["mm.2.weight", 1],
      qwen3vl_merger: ["mm.2.weight", 1],
    } as const
  )[projector];
  const length = tensors.get(name)?.shape[dimension];
  if (length === undefined) throw keys.invalid(`has no tensor "${name}"`);
  return length;
}
