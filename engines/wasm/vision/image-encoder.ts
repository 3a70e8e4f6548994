// Image encoder: turns tiles (images of limited size) into embeddings of the text model's width. It computes on compute
// threads of its own, of which the calling thread is the leader. It serves the models of both engines.
import { type ProjectorFile, readProjectorFile } from "../../files/projector.ts";
import { axisCount } from "../graph/ropes.ts";
import { tensorBytes } from "../load/fit.ts";
import { loadKernels } from "../load/kernel-module.ts";
import { loadThreads } from "../load/load-threads.ts";
import { Passes } from "../pass/passes.ts";
import type { PartitionPlan } from "../plan/partition-plan.ts";
import type { ComputeThread } from "../threads/compute-thread.ts";
import { HelperThread } from "../threads/helper-thread.ts";
import { allocateShared } from "../threads/shared-blocks.ts";
import { type PatchOrder, rowOrder, squareOrder } from "./patch-order.ts";
import { buildVisionGraph, type VisionModel } from "./vision-graph.ts";

/** KV type F32: keys and values are discarded after their layer. */
const kvType = 0;
const blockTokens = 32;

/** One image of a size that the encoder takes. */
export interface Tile {
  readonly width: number;
  readonly height: number;
  /** RGB values, row by row. */
  readonly pixels: Uint8Array;
}

export class ImageEncoder {
  readonly file: ProjectorFile;
  readonly #model: VisionModel;
  readonly #threads: number;
  readonly #leader: ComputeThread;
  readonly #passes: Passes;

  private constructor(
    file: ProjectorFile,
    model: VisionModel,
    leader: ComputeThread,
    helpers: readonly HelperThread[],
  ) {
    this.file = file;
    this.#model = model;
    this.#threads = helpers.length + 1;
    this.#leader = leader;
    this.#passes = new Passes(leader, helpers, null);
  }

  /** Loads a projector file. Throws `unsupported` or `model_file_invalid`. */
  static async load(path: string, threads: number): Promise<ImageEncoder> {
    const file = await readProjectorFile(path);
    const model = buildVisionGraph(file);
    const helpers = Array.from({ length: threads - 1 }, () => new HelperThread());
    try {
      const kernels = await loadKernels();
      const blocks = Math.ceil(model.tokens / blockTokens);
      const plan: PartitionPlan = {
        files: file.table.files,
        graph: model.graph,
        shape: model.shape,
        threads,
        passTokens: model.tokens,
        maxRows: 1 + maxWindows(file),
        maxOutputs: 0,
        blockTokens,
        kvType,
        pagesPerThread: Math.ceil(blocks / threads),
        blocksPerSequence: blocks,
        inputFloats: model.patchFloats,
        adapterRank: 0,
        mixture: null,
      };
      const shared = allocateShared(plan, 0, null);
      const bytes = tensorBytes(file.table);
      const { leader } = await loadThreads(plan, kernels, shared, helpers, bytes, () => undefined);
      return new ImageEncoder(file, model, leader, helpers);
    } catch (error) {
      await Promise.all(helpers.map((helper) => helper.terminate()));
      throw error;
    }
  }

  /**
   * Returns the embeddings of a tile in the order of rows, shape [rows x columns][length]. Synchronous: it takes from
   * milliseconds to minutes.
   */
  encode(tile: Tile): Float32Array {
    this.#passes.checkUsable();
    const { patchSize, mergeSide, windows, length } = this.file.sizes;
    const [rows, columns] = [tile.height / patchSize, tile.width / patchSize];
    const isAdjacent = this.#model.graph.vision?.merge.kind === "adjacent";
    const order = isAdjacent ? squareOrder(rows, columns, mergeSide, windows?.side ?? null) : rowOrder(rows, columns);
    this.#writePatches(tile, order);
    this.#describePass(order, columns);
    try {
      this.#passes.run();
    } catch (error) {
      throw this.#passes.fail(error);
    }
    return inRows(this.#leader.imageEmbeddings, order.cells, length);
  }

  dispose(): void {
    this.#passes.dispose();
  }

  /** Number of tokens before the patches: the class embedding. */
  get #classTokens(): number {
    return this.#model.tokens - this.file.sizes.patches;
  }

  /** Writes the pass: a row for each window, and a row of all tokens. */
  #describePass({ rows, columns, windows }: PatchOrder, patchColumns: number): void {
    const { pass } = this.#leader;
    const first = this.#classTokens;
    pass.clear();
    pass.patchColumns = patchColumns;
    for (const tokens of windows) this.#addRow(tokens);
    pass.windowCount = windows.length;
    pass.tokenCount = 0;
    this.#addRow(first + rows.length);
    if (pass.coordinates.length === 0) return;
    for (let patch = 0; patch < rows.length; patch++) {
      const at = (first + patch) * axisCount;
      pass.coordinates[at + 1] = rows[patch] as number;
      pass.coordinates[at + 2] = columns[patch] as number;
    }
  }

  /** Adds a row of the next tokens. All rows use the same pages, because they are computed one after the other. */
  #addRow(tokens: number): void {
    const { pass } = this.#leader;
    const blocks = Math.ceil(tokens / blockTokens);
    const firstPage = pass.addRow(tokens, 0, blocks);
    for (let block = 0; block < blocks; block++) pass.pages[firstPage + block] = Math.floor(block / this.#threads);
    pass.tokenCount += tokens;
  }

  /** Writes the normalised pixels of each patch as an input row: all red values, then green, then blue. */
  #writePatches({ pixels, width }: Tile, order: PatchOrder): void {
    const { patchSize } = this.file.sizes;
    const { mean, deviation } = this.file.tiling;
    const rows = this.#leader.inputRows;
    for (let patch = 0; patch < order.rows.length; patch++) {
      const top = (order.rows[patch] as number) * patchSize;
      const left = (order.columns[patch] as number) * patchSize;
      let to = (this.#classTokens + patch) * this.#model.patchFloats;
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

/** Returns the largest number of windows of a tile. */
function maxWindows({ sizes }: ProjectorFile): number {
  if (sizes.windows === null) return 0;
  // A tile of one row of windows has the most incomplete ones.
  const embeddings = sizes.patches / sizes.mergeSide ** 2;
  return Math.ceil(embeddings / sizes.windows.side);
}

/** Returns embeddings in the order of rows. `cells`: see PatchOrder. */
function inRows(embeddings: Float32Array, cells: Int32Array | null, length: number): Float32Array {
  if (cells === null) return embeddings.slice();
  const ordered = new Float32Array(embeddings.length);
  cells.forEach((cell, i) => {
    ordered.set(embeddings.subarray(i * length, (i + 1) * length), cell * length);
  });
  return ordered;
}
