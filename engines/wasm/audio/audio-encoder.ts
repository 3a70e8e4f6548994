// Audio encoder: turns windows of 30 seconds of audio into embeddings of the text model's width. It computes on compute threads of its
// own, of which the calling thread is the leader. It serves the models of both engines.
import { type AudioProjectorFile, readAudioProjectorFile, windowPositions } from "../../files/audio-projector.ts";
import { MelSpectrogram, windowFrames } from "../../speech/whisper/mel.ts";
import { tensorBytes } from "../load/fit.ts";
import { loadKernels } from "../load/kernel-module.ts";
import { loadThreads } from "../load/load-threads.ts";
import { Passes } from "../pass/passes.ts";
import type { PartitionPlan } from "../plan/partition-plan.ts";
import type { ComputeThread } from "../threads/compute-thread.ts";
import { HelperThread } from "../threads/helper-thread.ts";
import { allocateShared } from "../threads/shared-blocks.ts";
import { buildAudioGraph } from "./audio-graph.ts";

/** KV type F32: keys and values are discarded after their layer. */
const kvType = 0;
const blockTokens = 32;
const blocks = Math.ceil(windowPositions / blockTokens);
const kernelFrames = 3;

export class AudioEncoder {
  readonly file: AudioProjectorFile;
  readonly #inputFloats: number;
  readonly #threads: number;
  readonly #leader: ComputeThread;
  readonly #passes: Passes;
  readonly #mel: MelSpectrogram;

  private constructor(
    file: AudioProjectorFile,
    inputFloats: number,
    leader: ComputeThread,
    helpers: readonly HelperThread[],
  ) {
    this.file = file;
    this.#inputFloats = inputFloats;
    this.#threads = helpers.length + 1;
    this.#leader = leader;
    this.#passes = new Passes(leader, helpers, null);
    this.#mel = new MelSpectrogram(file.sizes.bands);
  }

  /** Loads a projector file. Throws `unsupported` or `model_file_invalid`. */
  static async load(path: string, threads: number): Promise<AudioEncoder> {
    const file = await readAudioProjectorFile(path);
    const { graph, shape, inputFloats } = buildAudioGraph(file);
    const helpers = Array.from({ length: threads - 1 }, () => new HelperThread());
    try {
      const kernels = await loadKernels();
      const plan: PartitionPlan = {
        files: file.table.files,
        ...{ graph, shape, threads, blockTokens, kvType, inputFloats },
        passTokens: windowPositions,
        maxRows: 1,
        maxOutputs: 0,
        pagesPerThread: Math.ceil(blocks / threads),
        blocksPerSequence: blocks,
        adapterRank: 0,
        mixture: null,
      };
      const shared = allocateShared(plan, 0, null);
      const { leader } = await loadThreads(plan, kernels, shared, helpers, tensorBytes(file.table), () => undefined);
      return new AudioEncoder(file, inputFloats, leader, helpers);
    } catch (error) {
      await Promise.all(helpers.map((helper) => helper.terminate()));
      throw error;
    }
  }

  /** Returns the spectrograms of the windows, shape [bands][3000] each. `samples`: mono, 16,000 a second. */
  windows(samples: Float32Array): Float32Array[] {
    return this.#mel.windows(samples);
  }

  /** Returns the embeddings of a window, shape [windowTokens][length]. Synchronous: it takes from milliseconds to minutes. */
  encode(spectrogram: Float32Array): Float32Array {
    this.#passes.checkUsable();
    this.#writeFrames(spectrogram);
    const { pass } = this.#leader;
    pass.clear();
    const firstPage = pass.addRow(windowPositions, 0, blocks);
    for (let block = 0; block < blocks; block++) pass.pages[firstPage + block] = Math.floor(block / this.#threads);
    pass.tokenCount = windowPositions;
    try {
      this.#passes.run();
    } catch (error) {
      throw this.#passes.fail(error);
    }
    return this.#leader.imageEmbeddings.slice();
  }

  dispose(): void {
    this.#passes.dispose();
  }

  /** Writes for each frame the values that the first convolution multiplies: of each band, the frames before, at and after it. */
  #writeFrames(spectrogram: Float32Array): void {
    const { bands } = this.file.sizes;
    const rows = this.#leader.inputRows;
    const columns = this.#inputFloats / 2;
    for (let band = 0; band < bands; band++) {
      for (let k = 0; k < kernelFrames; k++) {
        const to = band * kernelFrames + k;
        for (let frame = 0; frame < windowFrames; frame++) {
          const from = frame + k - 1;
          const isInside = from >= 0 && from < windowFrames;
          rows[frame * columns + to] = isInside ? (spectrogram[band * windowFrames + from] as number) : 0;
        }
      }
    }
  }
}
