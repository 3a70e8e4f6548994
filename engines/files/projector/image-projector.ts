// Projector file (mmproj): the GGUF file that lets a text model accept images. It contains an image encoder, and a projector from the
// encoder's output to embeddings of the text model's width. This module reads the header: sizes, and how an image is cut into tiles and
// delimited in a prompt. The rules are those of llama.cpp's mtmd.
import { ServerError } from "../../../runtime/errors.ts";
import { describeValue } from "../gguf/invalid-file.ts";
import { readTensorTable, type TensorTable } from "../gguf/tensors.ts";
import { hasVariableTiles, isQwen, sizesOf, variableSizes } from "./encoder-sizes.ts";
import type { EncoderSizes, ImageRules, ProjectorKind, SliceRules, TilingRules } from "./image-rules.ts";
import { ProjectorKeys } from "./projector-keys.ts";

export interface ProjectorFile {
  readonly table: TensorTable;
  readonly sizes: EncoderSizes;
  readonly tiling: TilingRules;
  readonly rules: ImageRules;
}

/** Widths of the text models of Gemma 4 in which the embeddings of an image attend only backwards: E2B and E4B. */
const causalGemma4Widths = [1536, 2560];

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

/** Returns the error for a projector file whose images have grid positions, with a model whose tokens have one position each. */
export function needsMrope(path: string): ServerError {
  const message = `mmproj ${path} belongs to a model with M-RoPE, and this model has none: name the mmproj file of this model`;
  return new ServerError("config_invalid", message, { param: "mmproj" });
}
