// Audio input: what turns audio into the input rows of a pass of one kind of audio encoder.
import type { MediaEncoder } from "../load/media-encoder.ts";

export interface AudioInput {
  /**
   * Splits audio into windows and returns the spectrogram of each window. Windows that are not full may be shorter. `samples`: mono audio at
   * 16,000 samples per second.
   */
  windows(samples: Float32Array): Float32Array[];
  /** Describes the pass for one window, and writes its input rows. */
  write(spectrogram: Float32Array, encoder: MediaEncoder): void;
}
