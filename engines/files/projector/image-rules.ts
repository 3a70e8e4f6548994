// Facts about a projector file of images: its kind, sizes of the encoder, and how an image is cut into tiles and delimited in a prompt.
// Plain data.

/**
 * Kind of a projector: key `clip.projector_type` (mlp: LLaVA, resampler: MiniCPM-V, gemma4uv: Gemma 4 12B, which has a projection of
 * squares of pixels instead of an encoder).
 */
export type ProjectorKind = (typeof projectors)[number];

export const projectors = [
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
   * limit), the image is scaled down to it first. A frame of a video has an area of at most `maxFramePixels` pixels.
   */
  readonly variable: {
    readonly unit: number;
    readonly minPixels: number;
    readonly maxPixels: number;
    readonly maxFramePixels: number;
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
