// Subsampling pass: the two convolutions at the start of a conformer, on one compute thread. They turn four frames of the spectrogram into
// one hidden state.
import type { TensorInfo } from "../../../files/gguf/tensors.ts";
import type { Matrix } from "../../graph/graph-tensors.ts";
import { multiplyJoined, type StepParts } from "../../pass/step-runner.ts";
import type { DividedGraph, Share } from "../../plan/partition-plan.ts";
import type { PassDescriptor } from "../../plan/pass-descriptor.ts";
import { kernelSide, type Subsampling, stridedLength } from "./steps.ts";

interface SubsamplingParts extends StepParts {
  readonly pass: PassDescriptor;
  readonly subsampling: Subsampling;
  readonly divided: Pick<DividedGraph, "embedding" | "projector">;
  /** `floats`: view of the thread's memory. `inputRows`: frames of the spectrogram, shape [frames][bands], shared by all threads. */
  readonly floats: Float32Array;
  readonly inputRows: Float32Array;
}

/** Feature map, shape [frames][bands][channels]. Reads outside of it give zeros. */
interface FeatureMap {
  readonly values: Float32Array;
  /** Frame of the first row of `values`, and the number of frames of the whole map. */
  readonly firstFrame: number;
  readonly frames: number;
  readonly bands: number;
  readonly channels: number;
}

interface StridedConvolution {
  readonly matrix: Matrix;
  readonly shares: readonly Share[];
  /** Number of output channels. */
  readonly channels: number;
  readonly norm: TensorInfo | null;
}

export class SubsamplingPass {
  readonly #parts: SubsamplingParts;
  readonly #first: StridedConvolution;
  readonly #second: StridedConvolution;
  /** Number of positions that are computed at once, so that the rows of the second convolution fit into the thread's memory. */
  readonly #positionsAtOnce: number;
  /** Outputs of the first convolution for these positions, and of the second one for all positions (rows of `inputProjection`). */
  readonly #firstOutput: Float32Array;
  readonly #secondOutput: Float32Array;

  constructor(parts: SubsamplingParts) {
    this.#parts = parts;
    const { subsampling, divided, plan } = parts;
    const { bands, channels, norms, secondConvolution, inputProjection } = subsampling;
    const { embedding } = plan.graph;
    this.#first = { matrix: embedding, shares: divided.embedding, channels: channels[0], norm: norms[0] };
    // The order of the matrices is that of projectorMatrices().
    const shares = divided.projector[0] ?? [];
    this.#second = { matrix: secondConvolution, shares, channels: channels[1], norm: norms[1] };
    const firstBands = stridedLength(bands);
    this.#positionsAtOnce = Math.max(1, Math.floor(plan.passTokens / stridedLength(firstBands)));
    this.#firstOutput = new Float32Array((2 * this.#positionsAtOnce + 1) * firstBands * channels[0]);
    this.#secondOutput = new Float32Array(plan.passTokens * inputProjection.columns);
  }

  /** Computes the hidden states of n positions from the frames of the spectrogram. */
  embed(n: number): void {
    const { at, divided, floats, plan, kernels, subsampling } = this.#parts;
    const { columns, rows } = subsampling.inputProjection;
    const { width } = plan.shape;
    for (let position = 0; position < n; position += this.#positionsAtOnce)
      this.#convolveTwice(position, Math.min(this.#positionsAtOnce, n - position));
    floats.set(this.#secondOutput.subarray(0, n * columns), at.input >>> 2);
    multiplyJoined(this.#parts, divided.projector[1] ?? [], { x: at.input, columns, n }, null);
    kernels.copyRows(at.joined, rows, at.hidden, width, n, width);
  }

  /** Computes both convolutions for `count` positions from `position` on. */
  #convolveTwice(position: number, count: number): void {
    const { pass, inputRows, subsampling } = this.#parts;
    const { bands, channels, inputProjection } = subsampling;
    const spectrogram = { values: inputRows, firstFrame: 0, frames: pass.frameCount, bands, channels: 1 };
    const map: FeatureMap = {
      values: this.#firstOutput,
      firstFrame: 2 * position - 1,
      frames: stridedLength(pass.frameCount),
      bands: stridedLength(bands),
      channels: channels[0],
    };
    const from = Math.max(0, map.firstFrame);
    const to = Math.min(map.frames, map.firstFrame + 2 * count + 1);
    const firstRow = (from - map.firstFrame) * map.bands;
    this.#convolve(spectrogram, this.#first, { from, to }, (row, values) => {
      this.#firstOutput.set(values, (firstRow + row) * map.channels);
    });
    const outputBands = stridedLength(map.bands);
    const { columns } = inputProjection;
    this.#convolve(map, this.#second, { from: position, to: position + count }, (row, values) => {
      const at = (position + Math.floor(row / outputBands)) * columns + (row % outputBands) * channels[1];
      this.#secondOutput.set(values, at);
    });
  }

  /**
   * Computes a convolution with stride 2, a layer norm over the channels, and ReLU, for the output frames [from, to). Calls `onOutput` with the
   * channels of each frame and band; `row` = (frame - from) * bands + band.
   */
  #convolve(
    map: FeatureMap,
    { matrix, shares, channels, norm }: StridedConvolution,
    { from, to }: { readonly from: number; readonly to: number },
    onOutput: (row: number, values: Float32Array) => void,
  ): void {
    const { at, kernels, floats, plan } = this.#parts;
    const { columns, rows: stride } = matrix;
    const { joined } = at;
    const bands = stridedLength(map.bands);
    const rows = (to - from) * bands;
    const weight = norm && (at.weights.get(norm.name) as number);
    for (let row = 0; row < rows; row += plan.passTokens) {
      const n = Math.min(plan.passTokens, rows - row);
      for (let i = 0; i < n; i++) {
        const target = (at.input >>> 2) + i * columns;
        this.#writePatch(map, from + Math.floor((row + i) / bands), (row + i) % bands, target);
        floats.fill(0, target + map.channels * kernelSide ** 2, target + columns);
      }
      multiplyJoined(this.#parts, shares, { x: at.input, columns, n }, null);
      if (weight !== null)
        kernels.layerNorm(joined, stride, weight, 0, joined, stride, n, channels, plan.shape.epsilon);
      for (let i = 0; i < n; i++) {
        const first = (joined >>> 2) + i * stride;
        for (let k = first; k < first + channels; k++) floats[k] = Math.max(0, floats[k] as number);
        onOutput(row + i, floats.subarray(first, first + channels));
      }
    }
  }

  /** Writes the 3 x 3 inputs (frames x bands) of each channel for one output frame and band, from `target` on (im2col). */
  #writePatch(
    { values, firstFrame, frames, bands, channels }: FeatureMap,
    frame: number,
    band: number,
    target: number,
  ) {
    const { floats } = this.#parts;
    let at = target;
    for (let channel = 0; channel < channels; channel++) {
      for (let f = 2 * frame - 1; f <= 2 * frame + 1; f++) {
        for (let b = 2 * band - 1; b <= 2 * band + 1; b++) {
          const isInside = f >= 0 && f < frames && b >= 0 && b < bands;
          floats[at++] = isInside ? (values[((f - firstFrame) * bands + b) * channels + channel] as number) : 0;
        }
      }
    }
  }
}
