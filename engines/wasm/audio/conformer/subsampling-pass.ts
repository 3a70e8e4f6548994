// Subsampling pass: the two convolutions at the start of a conformer, on one compute thread. They turn four frames of the spectrogram into
// one hidden state.
import type { TensorInfo } from "../../../files/gguf/tensors.ts";
import { multiplyJoined, type StepParts } from "../../pass/step-runner.ts";
import type { DividedGraph } from "../../plan/partition-plan.ts";
import type { PassDescriptor } from "../../plan/pass-descriptor.ts";
import { halved, type Subsampling } from "./steps.ts";

const kernelSide = 3;

export interface SubsamplingParts extends StepParts {
  readonly pass: PassDescriptor;
  readonly subsampling: Subsampling;
  readonly divided: Pick<DividedGraph, "embedding" | "projector">;
  /** `floats`: view of the thread's memory. `inputRows`: frames of the spectrogram, shape [frames][bands], shared by all threads. */
  readonly floats: Float32Array;
  readonly inputRows: Float32Array;
}

/** Values over time and bands, shape [times][bands][channels]. Values outside are zeros. */
interface Plane {
  readonly values: Float32Array;
  /** Time of the first row of `values`. */
  readonly first: number;
  readonly times: number;
  readonly bands: number;
  readonly channels: number;
}

export class SubsamplingPass {
  readonly #parts: SubsamplingParts;
  /** Number of positions whose convolutions are computed at once, so that the rows of the second one fit into the thread's memory. */
  readonly #positionsAtOnce: number;
  /** Outputs of the first convolution for these positions. */
  readonly #first: Float32Array;
  /** Outputs of the second convolution for all positions, one row of the matrix `input` each. */
  readonly #second: Float32Array;

  constructor(parts: SubsamplingParts) {
    this.#parts = parts;
    const { bands, channels, input } = parts.subsampling;
    const { passTokens } = parts.plan;
    const half = halved(bands);
    this.#positionsAtOnce = Math.max(1, Math.floor(passTokens / halved(half)));
    this.#first = new Float32Array((2 * this.#positionsAtOnce + 1) * half * channels[0]);
    this.#second = new Float32Array(passTokens * input.columns);
  }

  /** Computes the hidden states of n positions from the frames of the spectrogram. */
  embed(n: number): void {
    const { at, divided, floats, plan, kernels, subsampling } = this.#parts;
    const { input } = subsampling;
    const { width } = plan.shape;
    for (let position = 0; position < n; position += this.#positionsAtOnce)
      this.#convolve(position, Math.min(this.#positionsAtOnce, n - position));
    floats.set(this.#second.subarray(0, n * input.columns), at.input >>> 2);
    const shares = divided.projector[1] as DividedGraph["embedding"];
    multiplyJoined(this.#parts, shares, { x: at.input, columns: input.columns, n }, null);
    kernels.copyRows(at.joined, input.rows, at.hidden, width, n, width);
  }

  /** Computes both convolutions for `count` positions from `position` on. */
  #convolve(position: number, count: number): void {
    const { pass, divided, inputRows, plan, subsampling } = this.#parts;
    const { bands, channels, norms, second } = subsampling;
    const { embedding } = plan.graph;
    const frames: Plane = { values: inputRows, first: 0, times: pass.frameCount, bands, channels: 1 };
    const first: Plane = {
      values: this.#first,
      first: 2 * position - 1,
      times: halved(pass.frameCount),
      bands: halved(bands),
      channels: channels[0],
    };
    const [from, to] = [Math.max(0, first.first), Math.min(first.times, first.first + 2 * count + 1)];
    const rowFloats = first.bands * first.channels;
    this.#layer(frames, from, to - from, { shares: divided.embedding, ...embedding, norm: norms[0] }, (row, values) => {
      this.#first.set(values, (from - first.first) * rowFloats + row * first.channels);
    });
    const bandsLeft = halved(first.bands);
    const { columns } = subsampling.input;
    const shares = divided.projector[0] as DividedGraph["embedding"];
    this.#layer(first, position, count, { shares, ...second, norm: norms[1] }, (row, values) => {
      const at = (position + Math.floor(row / bandsLeft)) * columns + (row % bandsLeft) * channels[1];
      this.#second.set(values, at);
    });
  }

  /**
   * Computes a convolution with steps of two, a layer norm over the channels, and ReLU, for `count` times from `time` on. Calls `take` with
   * the channels of each band of each time, numbered from 0.
   */
  #layer(
    plane: Plane,
    time: number,
    count: number,
    convolution: {
      readonly shares: DividedGraph["embedding"];
      readonly rows: number;
      readonly columns: number;
      readonly filled?: { readonly rows: number };
      readonly norm: TensorInfo | null;
    },
    take: (row: number, values: Float32Array) => void,
  ): void {
    const { at, kernels, floats, plan } = this.#parts;
    const { shares, rows: stride, columns, filled, norm } = convolution;
    const channels = filled?.rows ?? stride;
    const bands = halved(plane.bands);
    const weight = norm && (at.weights.get(norm.name) as number);
    for (let row = 0; row < count * bands; row += plan.passTokens) {
      const n = Math.min(plan.passTokens, count * bands - row);
      for (let i = 0; i < n; i++) {
        const to = (at.input >>> 2) + i * columns;
        this.#takeSurroundings(plane, time + Math.floor((row + i) / bands), (row + i) % bands, to);
        floats.fill(0, to + plane.channels * kernelSide ** 2, to + columns);
      }
      multiplyJoined(this.#parts, shares, { x: at.input, columns, n }, null);
      const { joined } = at;
      if (weight !== null)
        kernels.layerNorm(joined, stride, weight, 0, joined, stride, n, channels, plan.shape.epsilon);
      for (let i = 0; i < n; i++) {
        const from = (joined >>> 2) + i * stride;
        for (let k = from; k < from + channels; k++) floats[k] = Math.max(0, floats[k] as number);
        take(row + i, floats.subarray(from, from + channels));
      }
    }
  }

  /** Writes the inputs of a convolution for one time and band after its step: for each channel, three times by three bands. */
  #takeSurroundings({ values, first, times, bands, channels }: Plane, time: number, band: number, to: number): void {
    const { floats } = this.#parts;
    let at = to;
    for (let channel = 0; channel < channels; channel++) {
      for (let t = 2 * time - 1; t <= 2 * time + 1; t++) {
        for (let b = 2 * band - 1; b <= 2 * band + 1; b++) {
          const isInside = t >= 0 && t < times && b >= 0 && b < bands;
          floats[at++] = isInside ? (values[((t - first) * bands + b) * channels + channel] as number) : 0;
        }
      }
    }
  }
}
