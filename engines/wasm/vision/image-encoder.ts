// Image encoder: turns tiles (images of limited size) into embeddings for the text model. Both engines use it.
import { type ProjectorFile, readProjectorFile } from "../../files/projector/image-projector.ts";
import type { MediaGraph } from "../graph/media-graph.ts";
import { axisCount } from "../graph/ropes.ts";
import { MediaEncoder } from "../load/media-encoder.ts";
import type { PassDescriptor } from "../plan/pass-descriptor.ts";
import { type PatchOrder, rowOrder, squareOrder } from "./patch-order.ts";
import { buildVisionGraph } from "./vision-graph.ts";

/** Tile: an image, or a piece of an image, of a size that the encoder accepts. `width` and `height` are in pixels. */
export interface Tile {
  readonly width: number;
  readonly height: number;
  /** RGB values, one byte each, row by row. */
  readonly pixels: Uint8Array;
}

export class ImageEncoder {
  readonly file: ProjectorFile;
  readonly #model: MediaGraph;
  readonly #encoder: MediaEncoder;

  private constructor(file: ProjectorFile, model: MediaGraph, encoder: MediaEncoder) {
    this.file = file;
    this.#model = model;
    this.#encoder = encoder;
  }

  /** Loads a projector file. Throws `unsupported` or `model_file_invalid`. */
  static async load(path: string, threads: number): Promise<ImageEncoder> {
    const file = await readProjectorFile(path);
    const model = buildVisionGraph(file);
    return new ImageEncoder(file, model, await MediaEncoder.load(file.table, model, threads));
  }

  /** Returns the embeddings of a tile, row by row, shape [rows x columns][length]. Blocks the thread for milliseconds to minutes. */
  encode(tile: Tile): Float32Array {
    const { patchSize, mergeSide, windows, length } = this.file.sizes;
    const [rows, columns] = [tile.height / patchSize, tile.width / patchSize];
    const isAdjacent = this.#model.graph.vision?.merge.kind === "adjacent";
    const order = isAdjacent ? squareOrder(rows, columns, mergeSide, windows?.side ?? null) : rowOrder(rows, columns);
    this.#describePass(this.#encoder.beginPass(), order, columns);
    this.#writePatches(tile, order);
    return inRows(this.#encoder.run(), order.cells, length);
  }

  dispose(): void {
    this.#encoder.dispose();
  }

  /** Number of tokens before the patches: 1 if the encoder has a class embedding, else 0. */
  get #classTokens(): number {
    return this.#model.tokens - this.file.sizes.patches;
  }

  /** Fills the pass descriptor with one row for each window, followed by one row for all tokens. */
  #describePass(pass: PassDescriptor, { rows, columns, windows }: PatchOrder, patchColumns: number): void {
    const first = this.#classTokens;
    pass.patchColumns = patchColumns;
    for (const tokens of windows) this.#encoder.addRow(tokens);
    pass.windowCount = windows.length;
    pass.tokenCount = 0;
    this.#encoder.addRow(first + rows.length);
    if (pass.coordinates.length === 0) return;
    for (let patch = 0; patch < rows.length; patch++) {
      const at = (first + patch) * axisCount;
      pass.coordinates[at + 1] = rows[patch] as number;
      pass.coordinates[at + 2] = columns[patch] as number;
    }
  }

  /** Writes the normalised pixels of each patch as an input row: all red values, then green, then blue. */
  #writePatches({ pixels, width }: Tile, order: PatchOrder): void {
    const { patchSize } = this.file.sizes;
    const { mean, deviation } = this.file.tiling;
    const rows = this.#encoder.inputRows;
    for (let patch = 0; patch < order.rows.length; patch++) {
      const top = (order.rows[patch] as number) * patchSize;
      const left = (order.columns[patch] as number) * patchSize;
      let to = (this.#classTokens + patch) * this.#model.inputFloats;
      for (let channel = 0; channel < 3; channel++) {
        const scale = 1 / (255 * (deviation[channel] as number));
        const shift = (mean[channel] as number) / (deviation[channel] as number);
        for (let y = 0; y < patchSize; y++) {
          const from = ((top + y) * width + left) * 3 + channel;
          for (let x = 0; x < patchSize; x++) rows[to++] = (pixels[from + x * 3] as number) * scale - shift;
        }
      }
    }
  }
}

/** Reorders embeddings from token order to the row-by-row order of the tile. `cells`: see PatchOrder. */
function inRows(embeddings: Float32Array, cells: Int32Array | null, length: number): Float32Array {
  if (cells === null) return embeddings.slice();
  const ordered = new Float32Array(embeddings.length);
  cells.forEach((cell, i) => {
    ordered.set(embeddings.subarray(i * length, (i + 1) * length), cell * length);
  });
  return ordered;
}
