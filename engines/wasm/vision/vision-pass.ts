// Vision pass: the start and the end of a pass of an image encoder, on one compute thread. At the start, patches become hidden states. At
// the end, the patches of each square are merged, and the projector turns them into embeddings for the text model.
import type { TensorInfo } from "../../files/gguf/tensors.ts";
import type { Norm } from "../graph/graph-tensors.ts";
import { normRows } from "../pass/projector-norm.ts";
import { multiplyJoined, type StepParts } from "../pass/step-runner.ts";
import type { DividedGraph } from "../plan/partition-plan.ts";
import type { PassDescriptor } from "../plan/pass-descriptor.ts";
import { Resampler } from "./resampler.ts";
import {
  type ProjectorStep,
  resamplerOf,
  type StandardiseStep,
  type VisionOuterLayers,
  visionSteps,
} from "./vision-outer-layers.ts";

const floatBytes = 4;

export interface VisionParts extends StepParts {
  readonly pass: PassDescriptor;
  readonly vision: VisionOuterLayers;
  readonly divided: Pick<DividedGraph, "embedding" | "secondEmbedding" | "projector" | "resampler">;
  /** `floats`: view of the thread's memory. `inputRows`: input rows, shared by all threads. */
  readonly floats: Float32Array;
  readonly inputRows: Float32Array;
}

/** Rows between the steps of a projector: address of the first row, floats of a row, number of rows. */
interface MergedRows {
  readonly x: number;
  readonly columns: number;
  readonly count: number;
}

export class VisionPass {
  readonly #parts: VisionParts;
  readonly #resampler: Resampler | null;
  /** Further vectors of the tile's embeddings, one array for each merger of `stacked`; on the leader only. */
  readonly #stacked: Float32Array[] = [];

  constructor(parts: VisionParts) {
    this.#parts = parts;
    const step = resamplerOf(parts.vision.projector);
    const { resampler: divided } = parts.divided;
    this.#resampler = step && divided && new Resampler({ ...parts, step, divided });
  }

  /**
   * Computes the first hidden states of n tokens from their input rows. If there is a class embedding, it is the first token; all other
   * tokens are patches.
   */
  embed(n: number): void {
    const { at, products, divided, floats, inputRows, plan, kernels, vision } = this.#parts;
    const { inputFloats, shape } = plan;
    floats.set(inputRows.subarray(0, n * inputFloats), at.input >>> 2);
    this.#layerNorm(vision.patchNorm, at.input, inputFloats, n);
    multiplyJoined(this.#parts, divided.embedding, { x: at.input, columns: inputFloats, n }, null);
    kernels.copyRows(at.joined, shape.width, at.hidden, shape.width, n, shape.width);
    if (divided.secondEmbedding) {
      products.multiply(products.own(divided.secondEmbedding), at.input, inputFloats, n, products.ownSlab);
      products.addToHidden(divided.secondEmbedding, n, null);
    }
    this.#layerNorm(vision.hiddenNorm, at.hidden, shape.width, n);
    const { classEmbedding } = vision;
    if (classEmbedding)
      kernels.copyRows(this.#addressOf(classEmbedding), shape.width, at.hidden, shape.width, 1, shape.width);
  }

  /** Applies the norm to n rows, in place. A row may be padded: it has `stride` floats, of which the norm takes as many as it has weights. */
  #layerNorm(norm: Norm | null, x: number, stride: number, n: number): void {
    if (norm === null) return;
    const { kernels, plan } = this.#parts;
    const bias = norm.bias === null ? 0 : this.#addressOf(norm.bias);
    const length = norm.weight.shape[0] as number;
    kernels.layerNorm(x, stride, this.#addressOf(norm.weight), bias, x, stride, n, length, plan.shape.epsilon);
  }

  /** If this layer has a merger, computes one further vector of each embedding. Only the leader keeps the vectors. */
  finishLayer(layer: number, isLeader: boolean): void {
    const { vision, pass, at, plan, floats } = this.#parts;
    const index = vision.stacked.findIndex((merger) => merger.layer === layer);
    const merger = vision.stacked[index];
    if (merger === undefined) return;
    const square = vision.merge.side ** 2;
    const merged = { x: at.hidden, columns: square * plan.shape.width, count: pass.tokenCount / square };
    const before = visionSteps({ ...vision, stacked: vision.stacked.slice(0, index) });
    const firstMatrix = before.filter(({ kind }) => kind === "matrix").length;
    const { x, columns, count } = this.#run(merger.steps, merged, firstMatrix);
    if (isLeader) this.#stacked[index] = floats.slice(x >>> 2, (x >>> 2) + count * columns);
  }

  /**
   * Computes the embeddings of a tile from the hidden states after the last layer. Returns the address and the number of the embeddings.
   */
  project(): { readonly address: number; readonly count: number } {
    const { at, plan, norms, vision, pass } = this.#parts;
    const { shape, graph } = plan;
    const patches = pass.tokenCount - (vision.classEmbedding ? 1 : 0);
    const first = at.hidden + (vision.classEmbedding ? shape.width * floatBytes : 0);
    norms.run(graph.outputNorm, first, first, patches);
    const square = vision.merge.side ** 2;
    const isAdjacent = vision.merge.kind === "adjacent";
    const columns = isAdjacent ? square * shape.width : this.#merge(first, patches);
    const merged = { x: isAdjacent ? first : at.input, columns, count: patches / square };
    const { x, count } = this.#run(vision.projector, merged, 0);
    return { address: x, count };
  }

  /**
   * Runs the steps of a projector. `firstMatrix`: index of its first matrix in `divided.projector`. Norm steps do not write to the hidden
   * states.
   */
  #run(steps: readonly ProjectorStep[], rows: MergedRows, firstMatrix: number): MergedRows {
    const { at, divided } = this.#parts;
    let { x, columns, count } = rows;
    let matrices = firstMatrix;
    for (const step of steps) {
      if (step.kind === "norm") {
        const to = x === at.hidden ? at.input : x;
        normRows(this.#parts, step, { x, out: to, columns, count });
        x = to;
        continue;
      }
      if (step.kind === "standardise") {
        this.#standardise(step, x, columns, count);
        continue;
      }
      if (step.kind === "resampler") {
        count = this.#resampler?.run(x, count) ?? count;
        x = at.joined;
        continue;
      }
      const shares = divided.projector[matrices++] as DividedGraph["embedding"];
      multiplyJoined(this.#parts, shares, { x, columns, n: count }, step.activation);
      x = at.joined;
      columns = step.matrix.rows;
    }
    return { x, columns, count };
  }

  /** Returns the embeddings that project() has computed for a tile. If the encoder has a row-end embedding, it is inserted between rows. */
  embeddings({ address, count }: ReturnType<VisionPass["project"]>): Float32Array {
    const { floats, vision, pass } = this.#parts;
    const { length, rowEnd, merge } = vision;
    const first = address >>> 2;
    if (vision.stacked.length > 0) return this.#withStacked(first, count);
    if (rowEnd === null) return floats.subarray(first, first + count * length);
    const end = this.#addressOf(rowEnd) >>> 2;
    const across = pass.patchColumns / merge.side;
    const rows = count / across;
    const all = new Float32Array((count + rows - 1) * length);
    for (let row = 0; row < rows; row++) {
      const from = first + row * across * length;
      const to = row * (across + 1) * length;
      all.set(floats.subarray(from, from + across * length), to);
      if (row < rows - 1) all.set(floats.subarray(end, end + length), to + across * length);
    }
    return all;
  }

  /** Returns the embeddings with their further vectors: for each embedding, the projector's vector, then those of the mergers. */
  #withStacked(first: number, count: number): Float32Array {
    const { floats, vision } = this.#parts;
    const vectors = 1 + vision.stacked.length;
    const length = vision.length / vectors;
    const all = new Float32Array(count * vision.length);
    [floats.subarray(first, first + count * length), ...this.#stacked].forEach((rows, vector) => {
      for (let row = 0; row < count; row++)
        all.set(rows.subarray(row * length, (row + 1) * length), (row * vectors + vector) * length);
    });
    this.#stacked.length = 0;
    return all;
  }

  #standardise({ factor, mean, scale }: StandardiseStep, x: number, columns: number, count: number): void {
    const { kernels, floats } = this.#parts;
    kernels.scaleRows(x, columns, count, columns, factor);
    if (mean) {
      const from = this.#addressOf(mean) >>> 2;
      for (let i = 0; i < count * columns; i++) {
        const at = (x >>> 2) + i;
        floats[at] = (floats[at] as number) - (floats[from + (i % columns)] as number);
      }
    }
    if (scale) kernels.scaleColumns(x, columns, count, this.#addressOf(scale), columns);
  }

  /** Merges the patches of each square, and writes the merged rows to ThreadMemory.input. Returns the number of floats in a merged row. */
  #merge(first: number, patches: number): number {
    const { at, kernels, plan, vision, floats, pass } = this.#parts;
    const { width } = plan.shape;
    const { kind, side } = vision.merge;
    if (kind === "interleaved" && side > 1) return this.#interleave(first, patches);
    const rowBytes = width * floatBytes;
    const { patchColumns } = pass;
    const across = patchColumns / side;
    const down = patches / patchColumns / side;
    const isAverage = kind === "average";
    const columns = isAverage ? width : width * side * side;
    if (isAverage) floats.fill(0, at.input >>> 2, (at.input >>> 2) + across * down * width);
    for (let y = 0; y < down; y++) {
      for (let x = 0; x < across; x++) {
        const to = at.input + (y * across + x) * columns * floatBytes;
        for (let dy = 0; dy < side; dy++) {
          const from = first + ((y * side + dy) * patchColumns + x * side) * rowBytes;
          if (isAverage)
            for (let dx = 0; dx < side; dx++) kernels.addRows(from + dx * rowBytes, width, to, width, 1, width);
          else kernels.copyRows(from, side * width, to + dy * side * rowBytes, side * width, 1, side * width);
        }
      }
    }
    if (isAverage) kernels.scaleRows(at.input, width, across * down, width, 1 / (side * side));
    return columns;
  }

  /**
   * Merges the patches of each square by interleaving: the first float of each patch, then the second float of each patch, and so on.
   * Returns the number of floats in a merged row.
   */
  #interleave(first: number, patches: number): number {
    const { at, plan, vision, floats, pass } = this.#parts;
    const { width } = plan.shape;
    const { side } = vision.merge;
    const square = side * side;
    const across = pass.patchColumns / side;
    for (let patch = 0; patch < patches; patch++) {
      const [row, column] = [Math.floor(patch / pass.patchColumns), patch % pass.patchColumns];
      const cell = Math.floor(row / side) * across + Math.floor(column / side);
      const from = (first >>> 2) + patch * width;
      const to = (at.input >>> 2) + cell * square * width + (row % side) * side + (column % side);
      for (let i = 0; i < width; i++) floats[to + i * square] = floats[from + i] as number;
    }
    return width * square;
  }

  #addressOf({ name }: TensorInfo): number {
    return this.#parts.at.weights.get(name) as number;
  }
}
