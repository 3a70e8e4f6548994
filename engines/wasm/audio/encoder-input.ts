// Encoder input: turns audio into the input rows of a pass. One implementation for each kind of encoder.
import type { MediaEncoder } from "../load/media-encoder.ts";

export interface EncoderInput {
  /**
   * Returns the input of each window of at most 30 seconds, such as its spectrogram; see cutIntoWindows(). `samples`: mono audio at 16,000
   * samples per second.
   */
  windows(samples: Float32Array): Float32Array[];
  /** Begins a pass for one window: describes it, and writes its input rows. */
  beginPass(window: Float32Array, encoder: MediaEncoder): void;
}
