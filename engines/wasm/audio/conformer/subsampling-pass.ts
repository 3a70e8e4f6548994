// Subsampling pass: the convolutions at the start of a conformer, on one compute thread. They turn several frames of the spectrogram into one
// hidden state.
import { multiplyJoined, type StepParts } from "../../pass/step-runner.ts";
import type { DividedGraph, Share } from "../../plan/partition-plan.ts";
import type { PassDescriptor } from "../../plan/pass-descriptor.ts";
import { kernelSide, type Subsampling, type SubsamplingStage, stridedLength } from "./steps.ts";

const kernelSize = kernelSide ** 2;

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

/** A stage with what this thread needs to run it. */
interface PreparedStage extends SubsamplingStage {
  readonly shares: readonly Share[];
  /** Number of bands of its output. */
  readonly bands: number;
  /** Its output for the positions that are computed at once. */
  readonly output: Float32Array;
}

export class SubsamplingPass {
  readonly #parts: SubsamplingParts;
  readonly #stages: readonly PreparedStage[];
  /** Number of positions that are computed at once: those for which the last stage needs one product. */
  readonly #positionsAtOnce: number;
  /** Rows of `inputProjection` for all positions. */
  readonly #rows: Float32Array;

  constructor(parts: SubsamplingParts) {
    this.#parts = parts;
    const { subsampling, divided, plan } = parts;
    const { stages, bands, inputProjection } = subsampling;
    const lastBands = stridedLength(bands, stages.length);
    this.#positionsAtOnce = Math.max(1, Math.floor(plan.passTokens / lastBands));
    let stageBands = bands;
    this.#stages = stages.map((stage, i) => {
      stageBands = stridedLength(stageBands);
      // The order of the matrices is that of projectorMatrices().
      const shares = i === 0 ? divided.embedding : (divided.projector[i - 1] ?? []);
      // n outputs of a convolution with stride 2 need at most 2 n + 1 inputs.
      const frames = (this.#positionsAtOnce + 1) * 2 ** (stages.length - 1 - i) - 1;
      return { ...stage, shares, bands: stageBands, output: new Float32Array(frames * stageBands * stage.channels) };
    });
    this.#rows = new Float32Array(plan.passTokens * inputProjection.columns);
  }

  /** Computes the hidden states of n positions from the frames of the spectrogram. */
  embed(n: number): void {
    const { at, divided, floats, plan, kernels, subsampling } = this.#parts;
    const { columns, rows } = subsampling.inputProjection;
    const { width } = plan.shape;
    const last = this.#stages.length - 1;
    for (let position = 0; position < n; position += this.#positionsAtOnce) {
      const end = Math.min(n, position + this.#positionsAtOnce);
      this.#writeRows(this.#run(last, position, end), position, end);
    }
    floats.set(this.#rows.subarray(0, n * columns), at.input >>> 2);
    multiplyJoined(this.#parts, divided.projector[last] ?? [], { x: at.input, columns, n }, null);
    kernels.copyRows(at.joined, rows, at.hidden, width, n, width);
  }

  /** Writes the outputs of the last stage for the positions [from, to) as rows of `inputProjection`. */
  #writeRows({ values, bands, channels }: FeatureMap, from: number, to: number): void {
    const { areChannelsFirst, inputProjection } = this.#parts.subsampling;
    const size = bands * channels;
    for (let position = from; position < to; position++) {
      const [source, target] = [(position - from) * size, position * inputProjection.columns];
      if (!areChannelsFirst) this.#rows.set(values.subarray(source, source + size), target);
      else
        for (let i = 0; i < size; i++)
          this.#rows[target + (i % channels) * bands + Math.floor(i / channels)] = values[source + i] as number;
    }
  }

  /** Runs the stages up to number `index` for the output frames [from, to) of that stage, and returns its output. */
  #run(index: number, from: number, to: number): FeatureMap {
    const { pass, inputRows, subsampling } = this.#parts;
    const stage = this.#stages[index];
    if (stage === undefined) {
      return { values: inputRows, firstFrame: 0, frames: pass.frameCount, bands: subsampling.bands, channels: 1 };
    }
    // Frames outside of the input are padding.
    const inputFrames = this.#framesOf(index - 1);
    const input = this.#run(index - 1, Math.max(0, 2 * from - 1), Math.min(inputFrames, 2 * to));
    this.#convolve(stage, input, from, to);
    const { output: values, bands, channels } = stage;
    return { values, firstFrame: from, frames: this.#framesOf(index), bands, channels };
  }

  /** Returns the number of output frames of a stage; -1 = of the spectrogram. */
  #framesOf(index: number): number {
    return stridedLength(this.#parts.pass.frameCount, index + 1);
  }

  /** Computes the output frames [from, to) of a stage. */
  #convolve(
    { matrix, depthwise, shares, channels, norm, bands, output }: PreparedStage,
    input: FeatureMap,
    from: number,
    to: number,
  ) {
    const { at, kernels, floats, plan } = this.#parts;
    const { columns, rows: stride } = matrix;
    const { joined } = at;
    const weight = norm && (at.weights.get(norm.name) as number);
    const used = depthwise ? input.channels : input.channels * kernelSize;
    const rows = (to - from) * bands;
    for (let row = 0; row < rows; row += plan.passTokens) {
      const n = Math.min(plan.passTokens, rows - row);
      for (let i = 0; i < n; i++) {
        const [frame, band] = [from + Math.floor((row + i) / bands), (row + i) % bands];
        const target = (at.input >>> 2) + i * columns;
        if (depthwise) this.#convolveDepthwise(depthwise, input, frame, band, target);
        else this.#writePatch(input, frame, band, target);
        floats.fill(0, target + used, target + columns);
      }
      multiplyJoined(this.#parts, shares, { x: at.input, columns, n }, null);
      if (weight !== null)
        kernels.layerNorm(joined, stride, weight, 0, joined, stride, n, channels, plan.shape.epsilon);
      for (let i = 0; i < n; i++) {
        const [source, target] = [(joined >>> 2) + i * stride, (row + i) * channels];
        for (let k = 0; k < channels; k++) output[target + k] = Math.max(0, floats[source + k] as number);
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

  /** Writes the depthwise convolution of each channel for one output frame and band, from `target` on. */
  #convolveDepthwise(
    { kernel, bias }: NonNullable<SubsamplingStage["depthwise"]>,
    { values, firstFrame, frames, bands, channels }: FeatureMap,
    frame: number,
    band: number,
    target: number,
  ): void {
    const { at, floats } = this.#parts;
    const biases = (at.weights.get(bias.name) as number) >>> 2;
    const weights = (at.weights.get(kernel.name) as number) >>> 2;
    floats.copyWithin(target, biases, biases + channels);
    for (let f = 0; f < kernelSide; f++) {
      for (let b = 0; b < kernelSide; b++) {
        const [inputFrame, inputBand] = [2 * frame - 1 + f, 2 * band - 1 + b];
        if (inputFrame < 0 || inputFrame >= frames || inputBand < 0 || inputBand >= bands) continue;
        const source = ((inputFrame - firstFrame) * bands + inputBand) * channels;
        const weight = weights + f * kernelSide + b;
        for (let k = 0; k < channels; k++)
          floats[target + k] =
            (floats[target + k] as number) +
            (floats[weight + k * kernelSize] as number) * (values[source + k] as number);
      }
    }
  }
}
