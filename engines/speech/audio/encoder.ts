// Audio formats that speech is written in, and the interface of their encoders.

export const audioFormats = ["mp3", "opus", "aac", "flac", "wav", "pcm"] as const;
export type AudioFormat = (typeof audioFormats)[number];

export interface AudioEncoder {
  /** Adds the samples of a sentence. Their bytes are written soon, those of some formats only at the end. */
  add(samples: Float32Array, isLast: boolean): Promise<void>;
  /** Resolves when all bytes have been written. */
  end(): Promise<void>;
  /** Gives the file up: ends the encoder's thread, if it has one. Needed unless end() was called. */
  cancel(): Promise<void>;
}

/** Receives the next bytes of the file. */
export type WriteBytes = (bytes: Uint8Array) => void;
