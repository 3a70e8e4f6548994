// Vision pass: the start and the end of a pass of an image encoder, on one compute thread. At the start, patches become hidden states. At
// the end, the patches of each square are merged, and the projector turns them into embeddings as wide as those of the text model.
import type { TensorInfo } from "../../files/gguf/tensors.ts";
import { multiplyJoined, type StepParts } from "../pass/step-runner.ts";
import type { DividedGraph } from "../plan/partition-plan.ts";
import type { PassDescriptor } from "../plan/pass-descriptor.ts";
import { Resampler } from "./resampler.ts";
import { type ProjectorStep, resamplerOf, type VisionOuterLayers } from "./vision-outer-layers.ts";

const floatBytes = 4;

export interface VisionParts extends StepParts {
  readonly pass: PassDescriptor;
  readonly vision: VisionOuterLayers;
  readonly divided: Pick<DividedGraph, "embedding" | "secondEmbedding" | "projector" | "resampler">;
  /** `floats`: view of the thread's memory. `inputRows`: input rows, shared by all threads. */
  readonly floats: Float32Array;
  readonly inputRows: Float32Array;
}

type NormStep = Extract<ProjectorStep, { kind: "norm" }>;

export class VisionPass {
  readonly #parts: VisionParts;
  readonly #resampler: Resampler | null;

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
    multiplyJoined(this.#parts, divided.embedding, { x: at.input, columns: inputFloats, n }, null);
    kernels.copyRows(at.joined, shape.width, at.hidden, shape.width, n, shape.width);
    if (divided.secondEmbedding) {
      products.multiply(products.own(divided.secondEmbedding), at.input, inputFloats, n, products.ownSlab);
      products.addToHidden(divided.secondEmbedding, n, null);
    }
    const { classEmbedding } = vision;
    if (classEmbedding)
      kernels.copyRows(this.#addressOf(classEmbedding), shape.width, at.hidden, shape.width, 1, shape.width);
  }

  /**
   * Computes the embeddings of a tile from the hidden states after the last layer. Returns the address and the number of the embeddings.
   */
  project(): { readonly address: number; readonly count: number } {
    const { at, divided, plan, norms, vision, pass } = this.#parts;
    const { shape, graph } = plan;
    const { joined } = at;
    const patches = pass.tokenCount - (vision.classEmbedding ? 1 : 0);
    const first = at.hidden + (vision.classEmbedding ? shape.width * floatBytes : 0);
    norms.run(graph.outputNorm, first, first, patches);
    const square = vision.merge.side ** 2;
    let count = patches / square;
    const isAdjacent = vision.merge.kind === "adjacent";
    let columns = isAdjacent ? square * shape.width : this.#merge(first, patches);
    let x = isAdjacent ? first : at.input;
    let matrices = 0;
    for (const step of vision.projector) {
      if (step.kind === "norm") {
        this.#norm(step, x, columns, count);
        continue;
      }
      if (step.kind === "resampler") {
        count = this.#resampler?.run(x, count) ?? count;
        x = joined;
        continue;
      }
      const shares = divided.projector[matrices++] as DividedGraph["embedding"];
      multiplyJoined(this.#parts, shares, { x, columns, n: count }, step.activation);
      x = joined;
      columns = step.matrix.rows;
    }
    return { address: x, count };
  }

  /** Returns the embeddings that project() has computed for a tile. If the encoder has a row-end embedding, it is inserted between rows. */
  embeddings({ address, count }: ReturnType<VisionPass["project"]>): Float32Array {
    const { floats, vision, pass } = this.#parts;
    const { length, rowEnd, merge } = vision;
    const first = address >>> 2;
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

  #norm({ norm, of, epsilon }: NormStep, x: number, columns: number, count: number): void {
    const { kernels } = this.#parts;
    const weight = this.#addressOf(norm.weight);
    const bias = norm.bias === null ? 0 : this.#addressOf(norm.bias);
    if (of === "rms") kernels.rmsNorm(x, columns, weight, x, columns, count, columns, epsilon);
    else kernels.layerNorm(x, columns, weight, bias, x, columns, count, columns, epsilon);
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
