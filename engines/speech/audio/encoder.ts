// Audio formats in which speech is written, and the interface of their encoders.

export const audioFormats = ["mp3", "opus", "aac", "flac", "wav", "pcm"] as const;
export type AudioFormat = (typeof audioFormats)[number];

export interface AudioEncoder {
  /** Adds the samples of a sentence. Most formats write their bytes soon, some only at the end. */
  add(samples: Float32Array, isLast: boolean): Promise<void>;
  /** Resolves when all bytes have been written. */
  end(): Promise<void>;
  /** Abandons the file, and ends the encoder's thread, if there is one. Must be called unless end() was called. */
  cancel(): Promise<void>;
}

/** Receives the next bytes of the file. */
export type WriteBytes = (bytes: Uint8Array) => void;
