// Projector file (mmproj): the GGUF file that lets a text model accept images. It contains an image encoder, and a projector from the
// encoder's output to embeddings of the text model's width. This module reads the header: sizes, and how an image is cut into tiles and
// delimited in a prompt. The rules are those of llama.cpp's mtmd.
import { ServerError } from "../../runtime/errors.ts";
import type { GgufValue } from "./gguf/cursor.ts";
import { describeValue } from "./gguf/invalid-file.ts";
import { readTensorTable, type TensorTable } from "./gguf/tensors.ts";
import { ProjectorHeader } from "./projector-header.ts";

/**
 * Kind of a projector: key `clip.projector_type` (mlp: LLaVA, resampler: MiniCPM-V, gemma4uv: Gemma 4 12B, which has a projection of
 * squares of pixels instead of an encoder).
 */
export type ProjectorKind = (typeof projectors)[number];

const projectors = [
  ...(["gemma3", "idefics3", "mlp", "internvl", "resampler", "pixtral"] as const),
  ...(["qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger", "gemma4v", "gemma4uv"] as const),
] as const;

/**
 * How a large image is cut into a grid of tiles. "grids": the possible grids, with tiles of one size. "fitted": up to nine tiles of about
 * the image's aspect ratio, with sides that are multiples of `unit` pixels and an area of at most `maxPixels` pixels.
 */
export type SliceRules =
  | { readonly kind: "grids"; readonly grids: readonly (readonly [columns: number, rows: number])[] }
  | { readonly kind: "fitted"; readonly unit: number; readonly maxPixels: number };

/**
 * How an image is cut into tiles, which the encoder processes one at a time: square tiles of `tileSize` pixels, or tiles of various sizes.
 * Plain data.
 */
export interface TilingRules {
  /** Side of a tile in pixels; 0 if tiles have various sizes. */
  readonly tileSize: number;
  /**
   * Tiles of variable size; null = all tiles have one size. The whole image is the only tile, with about its own aspect ratio, sides that
   * are multiples of `unit` pixels, and an area of `minPixels` to `maxPixels` pixels. If an edge exceeds `maxEdge` pixels (null = no
   * limit), the image is scaled down to it first.
   */
  readonly variable: {
    readonly unit: number;
    readonly minPixels: number;
    readonly maxPixels: number;
    readonly maxEdge: number | null;
  } | null;
  /**
   * Length in pixels to which the longest edge of an image is scaled, before the image is cut into a grid of tiles. Another tile shows the
   * whole image. null = no such grid: the whole image is the only tile, scaled to fit and padded.
   */
  readonly gridEdge: number | null;
  /** How an image larger than one tile is cut into a grid of tiles, in addition to one tile of the whole image; null = it is not cut. */
  readonly slices: SliceRules | null;
  readonly kernel: "linear" | "cubic" | "lanczos3";
  /** Colour of the padding, 0..255. */
  readonly padding: readonly [number, number, number];
  /** Subtracted from a channel's values (0..1), which are then divided by `deviation`. */
  readonly mean: readonly [number, number, number];
  readonly deviation: readonly [number, number, number];
}

/** Facts about a model's image input that text workers and the scheduler need. Plain data. */
export interface ImageRules {
  readonly projector: ProjectorKind;
  /** Number of embeddings per tile; if tiles have various sizes, of the largest tile. */
  readonly tileTokens: number;
  /** Side in pixels of a cell, which is the square part of a tile that becomes one embedding. */
  readonly cellSize: number;
  /**
   * Embeddings of a tile. "cells": one per cell. "rows": one per cell, and one more at the end of each row but the last. "fixed":
   * `tileTokens`, whatever the tile's size.
   */
  readonly layout: "cells" | "rows" | "fixed";
  /**
   * true (MiniCPM-V 2.5): each tile of a grid is between image tags, and the whole grid is between one pair of slice tags. false: each tile
   * is between slice tags.
   */
  readonly nestsSlices: boolean;
  /**
   * true: the embeddings of a tile have positions in time, rows and columns (M-RoPE), and the text after a tile continues
   * at the position after its longest side. false: each embedding has a position of its own, like a token.
   */
  readonly hasGridPositions: boolean;
  /** true: the embeddings of a tile attend to each other in both directions. */
  readonly attendsAhead: boolean;
}

/** Sizes of the image encoder. */
export interface EncoderSizes {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  readonly feedForward: number;
  readonly epsilon: number;
  readonly patchSize: number;
  /** Number of patches per tile; if tiles have various sizes, of the largest tile. */
  readonly patches: number;
  /** Side in patches of the square that becomes one embedding. */
  readonly mergeSide: number;
  /** Number of queries of a resampler, each of which yields one embedding; 0 = the projector is no resampler. */
  readonly queries: number;
  readonly activation: "gelu" | "silu" | "quickGelu";
  /**
   * Windowed attention: `side` = side of a window in embeddings; every `interval`-th layer attends to the whole image. null = all layers
   * do.
   */
  readonly windows: { readonly side: number; readonly interval: number } | null;
  /** Layers after which a merger makes further vectors of an embedding (DeepStack of Qwen3-VL); empty = none. */
  readonly stackedLayers: readonly number[];
  /** Number of floats of an embedding, including the vectors of `stackedLayers`. */
  readonly length: number;
}

export interface ProjectorFile {
  readonly table: TensorTable;
  readonly sizes: EncoderSizes;
  readonly tiling: TilingRules;
  readonly rules: ImageRules;
}

const maxSide = 512;
/** Maximum number of widths and heights in a list of grids. */
const maxPinpoints = 256;
/**
 * Minimum and maximum number of cells per tile, for models with tiles of variable size, as in llama.cpp's mtmd. The keys
 * `image_min_pixels` and `image_max_pixels` override them.
 */
const variableTokens = {
  qwen: { least: 8, most: 4096 },
  pixtral: { least: 8, most: 1024 },
  // 280 as in transformers; mtmd has 1120, which takes minutes and gigabytes on a CPU.
  gemma4v: { least: 70, most: 280 },
};
/** Maximum number of patches of a tile of variable size, whatever the keys say. */
const maxVariablePatches = 16_384;
const maxPixelCount = 2 ** 31 - 1;
/** Version numbers of MiniCPM-V in files: `nested` = 2.5, `plain` = later versions, whose tiles have the same tags as those of 2.6. */
const minicpmVersions = { nested: [0, 2], plain: [3, 4, 5, 6, 100_045] };
/** Number of queries if the file does not state it: of MiniCPM-V 2.5, and of later versions. */
const minicpmQueries = { nested: 96, plain: 64 };
/** Widths of the text models of Gemma 4 in which the embeddings of an image attend only backwards: E2B and E4B. */
const causalGemma4Widths = [1536, 2560];
/** Epsilon of the layer norms of Gemma 4 12B's projection of squares; no key of the file has it. */
const squareEpsilon = 1e-5;
/** Side in pixels of a window of Qwen 2.5 VL; no key of the file has it. */
const qwenWindow = 112;

/** Reads the header of a projector file. Throws `unsupported`, which names the projector, or `model_file_invalid`, which names the key. */
export async function readProjectorFile(path: string): Promise<ProjectorFile> {
  const table = await readTensorTable(path);
  const keys = new ProjectorKeys(path, table.fields);
  if (table.fields.get("general.architecture") !== "clip") {
    const found = describeValue(table.fields.get("general.architecture"));
    throw keys.invalid(`its general.architecture is ${found}; expected "clip"`);
  }
  const projector = keys.projector();
  const sizes = sizesOf(keys, projector, table);
  const cellSize = sizes.patchSize * sizes.mergeSide;
  const variable = hasVariableTiles(projector) ? variableSizes(keys, projector, sizes) : null;
  const tileSize = variable ? 0 : keys.count("image_size", 8192);
  const cells = sizes.patches / sizes.mergeSide ** 2;
  return {
    table,
    sizes,
    tiling: {
      tileSize,
      variable,
      gridEdge: projector === "idefics3" ? keys.count("preproc_image_size", 16 * tileSize, 4 * tileSize) : null,
      slices: slicesOf(keys, projector, sizes, tileSize),
      kernel: kernelOf(projector),
      padding: projector === "mlp" ? [122, 116, 104] : [0, 0, 0],
      ...normalisation(keys, projector),
    },
    rules: {
      projector,
      // With the layout "rows", a tile that is one cell wide has the most embeddings.
      tileTokens: projector === "resampler" ? sizes.queries : projector === "pixtral" ? 2 * cells - 1 : cells,
      cellSize,
      layout: projector === "resampler" ? "fixed" : projector === "pixtral" ? "rows" : "cells",
      nestsSlices: projector === "resampler" && keys.hasNestedSlices(),
      hasGridPositions: isQwen(projector),
      attendsAhead: attendsAhead(projector, sizes),
    },
  };
}

function sizesOf(keys: ProjectorKeys, projector: ProjectorKind, table: TensorTable): EncoderSizes {
  if (isQwen(projector)) return readQwenSizes(keys, projector, table);
  if (projector === "gemma4uv") return readSquareSizes(keys, table);
  return hasVariableTiles(projector) ? readMergedSizes(keys, projector, table) : readSizes(keys, projector, table);
}

function attendsAhead(projector: ProjectorKind, { length }: EncoderSizes): boolean {
  if (projector === "gemma4v") return !causalGemma4Widths.includes(length);
  return projector === "gemma3" || projector === "gemma4uv";
}

function normalisation(keys: ProjectorKeys, projector: ProjectorKind): Pick<TilingRules, "mean" | "deviation"> {
  const [mean, deviation] = [keys.channels("image_mean"), keys.channels("image_std")];
  if (projector !== "gemma4v") return { mean, deviation };
  // Gemma 4 computes 2 * normalised - 1. That is to subtract the mean plus half of the deviation, and to divide by half of the deviation.
  const half = deviation.map((value) => value / 2) as [number, number, number];
  const [red, green, blue] = mean.map((value, channel) => value + (half[channel] as number)) as typeof half;
  return { mean: [red, green, blue], deviation: half };
}

function variableSizes(
  keys: ProjectorKeys,
  projector: VariableKind,
  { patchSize, mergeSide }: Pick<EncoderSizes, "patchSize" | "mergeSide">,
): NonNullable<TilingRules["variable"]> {
  const { least, most } = variableTokens[isQwen(projector) ? "qwen" : projector === "gemma4uv" ? "gemma4v" : projector];
  const unit = patchSize * mergeSide;
  const edge = projector === "pixtral" ? keys.countOrNone("preproc_image_size", 65_536) : 0;
  const given = keys.count("image_max_pixels", maxPixelCount, most * unit ** 2);
  if (given < unit ** 2) throw keys.invalid(`its image_max_pixels is ${given}; expected at least ${unit ** 2}`);
  const maxPixels = Math.min(given, maxVariablePatches * patchSize ** 2);
  const minPixels = keys.count("image_min_pixels", maxPixels, Math.min(least * unit ** 2, maxPixels));
  return { unit, minPixels, maxPixels, maxEdge: edge || null };
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

function slicesOf(
  keys: ProjectorKeys,
  projector: ProjectorKind,
  { patchSize, patches }: EncoderSizes,
  tileSize: number,
): SliceRules | null {
  switch (projector) {
    case "internvl": {
      const grids = gridsUpTo(keys.count("preproc_min_tiles", 64, 1), keys.count("preproc_max_tiles", 64, 12));
      if (grids.length === 0) throw keys.invalid("its preproc_min_tiles and preproc_max_tiles leave no grid of tiles");
      return { kind: "grids", grids };
    }
    case "resampler":
      return { kind: "fitted", unit: patchSize, maxPixels: patches * patchSize ** 2 };
    case "mlp":
      return keys.pinpoints(tileSize);
    default:
      return null;
  }
}

/** Returns the grids of `least` to `most` tiles, in the order of llama.cpp's mtmd. */
function gridsUpTo(least: number, most: number): [number, number][] {
  const grids: [number, number][] = [];
  for (let columns = least; columns <= most; columns++) {
    const first = Math.max(Math.ceil(least / columns), least);
    for (let rows = first; rows <= Math.trunc(most / columns); rows++) grids.push([columns, rows]);
  }
  return grids;
}

type QwenKind = Extract<ProjectorKind, `qwen${string}`>;
/** Projectors with tiles of variable size. */
type VariableKind = QwenKind | "pixtral" | "gemma4v" | "gemma4uv";

function isQwen(projector: ProjectorKind): projector is QwenKind {
  return projector.startsWith("qwen");
}

function hasVariableTiles(projector: ProjectorKind): projector is VariableKind {
  return isQwen(projector) || projector === "pixtral" || projector === "gemma4v" || projector === "gemma4uv";
}

function kernelOf(projector: ProjectorKind): TilingRules["kernel"] {
  switch (projector) {
    case "gemma3":
      return "linear";
    case "idefics3":
      return "lanczos3";
    default:
      return "cubic";
  }
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

/** Returns the error for a projector file whose images have grid positions, with a model whose tokens have one position each. */
export function needsMrope(path: string): ServerError {
  const message = `mmproj ${path} belongs to a model with M-RoPE, and this model has none: name the mmproj file of this model`;
  return new ServerError("config_invalid", message, { param: "mmproj" });
}

class ProjectorKeys extends ProjectorHeader {
  constructor(path: string, fields: ReadonlyMap<string, GgufValue>) {
    super(path, fields, "vision");
  }

  projector(): ProjectorKind {
    const kind = this.fields.get("clip.projector_type") ?? this.fields.get("clip.vision.projector_type") ?? "mlp";
    const known = projectors.find((name) => name === kind);
    if (known !== undefined) return known;
    const message = `${this.path} has the projector ${describeValue(kind)}; expected ${projectors.join(", ")}`;
    throw new ServerError("unsupported", message, { param: "mmproj" });
  }

  /** Whether the version of MiniCPM-V is 2.5. Throws `unsupported` for an unknown version. */
  hasNestedSlices(): boolean {
    const version = this.fields.get("clip.minicpmv_version") ?? 0;
    const { nested, plain } = minicpmVersions;
    if (nested.some((one) => one === version)) return true;
    if (plain.some((one) => one === version)) return false;
    const known = [...nested, ...plain].join(", ");
    const message = `${this.path} has clip.minicpmv_version ${describeValue(version)}; expected one of ${known}`;
    throw new ServerError("unsupported", message, { param: "mmproj" });
  }

  queries(): number {
    const value = this.fields.get("clip.minicpmv_query_num") ?? 0;
    if (value === 0) return this.hasNestedSlices() ? minicpmQueries.nested : minicpmQueries.plain;
    if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= 4096) return value;
    throw this.invalid(
      `its clip.minicpmv_query_num is ${describeValue(value)}; expected a whole number from 1 to 4096`,
    );
  }

  /** Returns the grids of LLaVA 1.6, which the key lists as width and height in pixels in turn; null = the file has none. */
  pinpoints(tileSize: number): SliceRules | null {
    const key = "image_grid_pinpoints";
    const value = this.value(key);
    if (value === undefined) return null;
    const isTiles = (one: unknown) =>
      typeof one === "number" && one > 0 && one <= 64 * tileSize && one % tileSize === 0;
    if (!Array.isArray(value) || value.length % 2 !== 0 || value.length > maxPinpoints || !value.every(isTiles)) {
      throw this.invalidKey(key, `at most ${maxPinpoints / 2} pairs of multiples of ${tileSize}`);
    }
    const tiles = (value as number[]).map((length) => length / tileSize);
    const grids = Array.from({ length: tiles.length / 2 }, (_, i) => tiles.slice(2 * i, 2 * i + 2) as [number, number]);
    return grids.length === 0 ? null : { kind: "grids", grids };
  }

  channels(key: string): [number, number, number] {
    const value = this.value(key);
    const isNumber = (one: unknown) => typeof one === "number" && Number.isFinite(one);
    if (Array.isArray(value) && value.length === 3 && value.every(isNumber)) return value as [number, number, number];
    throw this.invalidKey(key, "three numbers");
  }

  /** `fallback`: activation of a file without a key for it. */
  activation(fallback: EncoderSizes["activation"] = "quickGelu"): EncoderSizes["activation"] {
    if (this.fields.get("clip.use_gelu") === true) return "gelu";
    return this.fields.get("clip.use_silu") === true ? "silu" : fallback;
  }
}
