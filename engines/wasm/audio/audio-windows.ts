// Audio windows: how audio is cut into windows of at most 30 seconds for each kind of encoder, and how many embeddings each window has.
import { type AudioRules, tokenSamples } from "../../files/projector/audio-projector.ts";
import { windowSamples } from "../../speech/audio/audio-window.ts";
import { windowFrames } from "../../speech/whisper/mel.ts";
import { gemma4Frames } from "./conformer/gemma4-spectrogram.ts";
import { lfm2Frames } from "./conformer/lfm2-spectrogram.ts";
import { stridedLength } from "./conformer/steps.ts";

export interface AudioWindow {
  /** Number of samples, without padding. */
  readonly samples: number;
  /** Number of frames of the encoder's input: of the spectrogram, or runs of samples. */
  readonly frames: number;
  readonly embeddings: number;
}

/** Number of convolutions with stride 2 at the start of a conformer. */
export const conformerStages = { gemma4a: 2, lfm2a: 3 } as const;

/**
 * Returns the windows of audio with `count` samples. All are full but the last one, which encoders of Whisper's kind pad with silence. The
 * windows of LFM2-Audio have equal lengths, because each is normalised by itself.
 */
export function cutIntoWindows({ projector, windowTokens }: AudioRules, count: number): AudioWindow[] {
  const windows = Math.max(1, Math.ceil(count / windowSamples));
  const length = projector === "lfm2a" ? Math.ceil(count / windows) : windowSamples;
  return Array.from({ length: windows }, (_, i) => {
    const samples = Math.min(length, count - i * length);
    switch (projector) {
      case "gemma4a": {
        const frames = gemma4Frames(samples);
        return { samples, frames, embeddings: stridedLength(frames, conformerStages.gemma4a) };
      }
      case "lfm2a": {
        const frames = lfm2Frames(samples);
        return { samples, frames, embeddings: stridedLength(frames, conformerStages.lfm2a) };
      }
      case "gemma4ua": {
        const frames = Math.max(1, Math.ceil(samples / tokenSamples));
        return { samples, frames, embeddings: frames };
      }
      default:
        return { samples, frames: windowFrames, embeddings: windowTokens };
    }
  });
}
