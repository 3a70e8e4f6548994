// Audio pass: the start and the end of a pass of an audio encoder, on one compute thread. At the start, two convolutions turn the frames of
// a spectrogram into hidden states, one for every two frames. At the end, the projector turns the hidden states into embeddings as wide as
// those of the text model.

import { activationNumbers, multiplyJoined, type StepParts } from "../pass/step-runner.ts";
import type { DividedGraph } from "../plan/partition-plan.ts";
import { type AudioOuterLayers, kernelFrames } from "./audio-outer-layers.ts";

/** Epsilon of the projector's norms in llama.cpp. */
const projectorEpsilon = 1e-6;

export interface AudioParts extends StepParts {
  readonly audio: AudioOuterLayers;
  readonly divided: Pick<DividedGraph, "embedding" | "projector">;
  /** `floats`: view of the thread's memory. `inputRows`: input rows, shared by all threads; a position has one even and one odd frame. */
  readonly floats: Float32Array;
  readonly inputRows: Float32Array;
}

export class AudioPass {
  readonly #parts: AudioParts;
  /** Inputs of the second convolution, shape [positions][width][3]. */
  readonly #frames: Float32Array;

  constructor(parts: AudioParts) {
    this.#parts = parts;
    this.#frames = new Float32Array(parts.plan.passTokens * parts.plan.shape.width * kernelFrames);
  }

  /** Computes the hidden states of n positions from the input rows. */
  embed(n: number): void {
    const { at, divided, floats, inputRows, plan, kernels, audio } = this.#parts;
    const { width } = plan.shape;
    const columns = plan.inputFloats / 2;
    for (const parity of [0, 1]) {
      for (let i = 0; i < n; i++) {
        const from = i * plan.inputFloats + parity * columns;
        floats.set(inputRows.subarray(from, from + columns), (at.input >>> 2) + i * columns);
      }
      multiplyJoined(this.#parts, divided.embedding, { x: at.input, columns, n }, "gelu");
      this.#takeFrames(n, parity);
    }
    floats.set(this.#frames, at.input >>> 2);
    const convolution = divided.projector[0] as DividedGraph["embedding"];
    multiplyJoined(this.#parts, convolution, { x: at.input, columns: audio.convolution.columns, n }, "gelu");
    kernels.copyRows(at.joined, width, at.hidden, width, n, width);
  }

  /**
   * Copies the outputs of the first convolution for the even frames (`parity` 0) or the odd frames (1) to the inputs of the second
   * convolution. A position reads the previous position's odd frame, its own even frame and its own odd frame.
   */
  #takeFrames(n: number, parity: number): void {
    const { at, floats, plan } = this.#parts;
    const { width } = plan.shape;
    const row = width * kernelFrames;
    for (let i = 0; i < n; i++) {
      const from = (at.joined >>> 2) + i * width;
      const to = i * row;
      for (let k = 0; k < width; k++) {
        const value = floats[from + k] as number;
        this.#frames[to + k * kernelFrames + 1 + parity] = value;
        if (parity === 1 && i + 1 < n) this.#frames[to + row + k * kernelFrames] = value;
      }
    }
  }

  /** Computes the embeddings from the hidden states after the last layer. Returns the address and the number of the embeddings. */
  project(): { readonly address: number; readonly count: number } {
    const { at, divided, kernels, norms, plan, floats, audio } = this.#parts;
    const { shape, graph, passTokens } = plan;
    const positions = audio.averagesPairs ? this.#averagePairs(passTokens) : passTokens;
    norms.run(graph.outputNorm, at.hidden, at.input, positions);
    const count = Math.ceil(positions / audio.stack);
    let columns = shape.width * audio.stack;
    // If the positions do not fill the last row, its rest is set to zero.
    floats.fill(0, (at.input >>> 2) + positions * shape.width, (at.input >>> 2) + count * columns);
    let x = at.input;
    let matrices = 1;
    for (const step of audio.projector) {
      switch (step.kind) {
        case "norm": {
          const weight = at.weights.get(step.weight.name) as number;
          kernels.rmsNorm(x, columns, weight, x, columns, count, columns, projectorEpsilon);
          break;
        }
        case "gelu":
          kernels.activate(activationNumbers.gelu, x, x, count * columns);
          break;
        case "gated":
          columns = this.#gate(x, columns, count);
          x = at.input;
          break;
        case "matrix":
          multiplyJoined(
            this.#parts,
            divided.projector[matrices++] as DividedGraph["embedding"],
            { x, columns, n: count },
            null,
          );
          x = at.joined;
          columns = step.matrix.rows;
      }
    }
    return { address: x, count };
  }

  /** Returns a view of the embeddings that project() has computed for a window. */
  embeddings({ address, count }: ReturnType<AudioPass["project"]>): Float32Array {
    const { floats, audio } = this.#parts;
    const first = address >>> 2;
    return floats.subarray(first, first + count * audio.length);
  }

  #averagePairs(positions: number): number {
    const { at, floats, plan } = this.#parts;
    const { width } = plan.shape;
    const hidden = at.hidden >>> 2;
    const pairs = Math.floor(positions / 2);
    for (let i = 0; i < pairs; i++) {
      for (let k = 0; k < width; k++) {
        const from = hidden + 2 * i * width + k;
        floats[hidden + i * width + k] = ((floats[from] as number) + (floats[from + width] as number)) / 2;
      }
    }
    return pairs;
  }

  /**
   * Computes the projector step "gated": multiplies the first half of each row by the silu of its second half. Writes the results to
   * ThreadMemory.input. Returns the number of floats in a result row.
   */
  #gate(x: number, columns: number, count: number): number {
    const { at, floats } = this.#parts;
    const half = columns / 2;
    for (let i = 0; i < count; i++) {
      const from = (x >>> 2) + i * columns;
      for (let k = 0; k < half; k++) {
        const gate = floats[from + half + k] as number;
        floats[(at.input >>> 2) + i * half + k] = ((floats[from + k] as number) * gate) / (1 + Math.exp(-gate));
      }
    }
    return half;
  }
}
