// Image tokens: the part of a prompt that stands for an image. Each tile of the image is a run of placeholders, between the tags that the
// model expects. The tags are those of llama.cpp's mtmd.
import { ServerError } from "../../runtime/errors.ts";
import type { ImageRules } from "../files/projector/image-rules.ts";
import type { PreparedMedia } from "../media/media-tokens.ts";

/** Returns rows and columns of a tile's embeddings. If there is not exactly one embedding per cell, they form one row. */
export function tileGrid(
  { layout, cellSize, tileTokens }: Pick<ImageRules, "layout" | "cellSize" | "tileTokens">,
  { width, height }: { readonly width: number; readonly height: number },
): PreparedMedia["tiles"][number] {
  const [rows, columns] = [height / cellSize, width / cellSize];
  switch (layout) {
    case "cells":
      return { rows, columns };
    case "rows":
      return { rows: 1, columns: rows * (columns + 1) - 1 };
    case "fixed":
      return { rows: 1, columns: tileTokens };
  }
}

/**
 * Returns the parts of a prompt that stand for an image, in order: tags (strings) and tiles (indices). Tags are tokenised like the
 * template's text, so names of control tokens become these tokens.
 */
export function imageParts(
  { projector, nestsSlices }: Pick<ImageRules, "projector" | "nestsSlices">,
  { grid }: Pick<PreparedMedia, "grid">,
): readonly (string | number)[] {
  switch (projector) {
    case "mlp":
      return grid === null ? [0] : [grid.rows * grid.columns, ...Array(grid.rows * grid.columns).keys()];
    case "internvl":
      return ["<img>", ...allTiles(grid), "</img>"];
    case "resampler":
      return minicpmParts(grid, nestsSlices);
    case "pixtral":
      return [0, "[IMG_END]"];
    case "gemma4v":
    case "gemma4uv":
      return ["<|image>", 0, "<image|>"];
    case "gemma3":
      return ["<start_of_image>", 0, "<end_of_image>"];
    case "idefics3":
      return idefics3Parts(grid ?? { rows: 0, columns: 0 });
    case "qwen2vl_merger":
    case "qwen2.5vl_merger":
    case "qwen3vl_merger":
      return ["<|vision_start|>", 0, "<|vision_end|>"];
  }
}

/** Returns all tiles; the tile of the whole image is the last. */
function allTiles(grid: PreparedMedia["grid"]): number[] {
  return Array.from({ length: grid === null ? 1 : grid.rows * grid.columns + 1 }, (_, tile) => tile);
}

/** Returns the parts for MiniCPM-V: the tile of the whole image first, then the tiles of the grid, each between tags. */
function minicpmParts(grid: PreparedMedia["grid"], nestsSlices: boolean): (string | number)[] {
  const { rows, columns } = grid ?? { rows: 0, columns: 0 };
  const parts: (string | number)[] = ["<image>", rows * columns, "</image>"];
  if (grid === null) return parts;
  const [from, to] = nestsSlices ? ["<image>", "</image>"] : ["<slice>", "</slice>"];
  if (nestsSlices) parts.push("<slice>");
  for (let row = 0; row < rows; row++) {
    if (row > 0) parts.push("\n");
    for (let column = 0; column < columns; column++) parts.push(from, row * columns + column, to);
  }
  return nestsSlices ? [...parts, "</slice>"] : parts;
}

function idefics3Parts({ rows, columns }: { readonly rows: number; readonly columns: number }): (string | number)[] {
  const parts: (string | number)[] = [];
  for (let row = 0; row < rows; row++) {
    if (row > 0) parts.push("\n");
    for (let column = 0; column < columns; column++) {
      parts.push(`<fake_token_around_image><row_${row + 1}_col_${column + 1}>`, row * columns + column);
    }
  }
  if (rows > 0) parts.push("\n\n");
  return [...parts, "<fake_token_around_image>", "<global-img>", rows * columns, "<fake_token_around_image>"];
}

/** Returns the error for a request with more images and videos than the model accepts. */
export function tooManyImages(count: number, maxImages: number, param: string): ServerError {
  const message = `the request has ${count} images or videos; this model takes at most ${maxImages} (max_num_images)`;
  return new ServerError("invalid_value", message, { param });
}

/** Returns the error for a request with images or videos to a model that was loaded without a projector. */
export function takesNoImages(id: string, param: string): ServerError {
  const message = `model "${id}" takes text, not images or videos: load it with a max_num_images above 0, and a projector file (--mmproj) or a folder in safetensors with --kind multimodal`;
  return new ServerError("unsupported", message, { param });
}
