// Audio tokens: the part of a prompt that stands for audio. Each window of 30 seconds is a run of placeholders; marks stand around all
// of them. The marks are those of llama.cpp's mtmd.
import { ServerError } from "../../runtime/errors.ts";
import type { AudioProjectorKind } from "../files/audio-projector.ts";

const marks: Readonly<Record<AudioProjectorKind, readonly [before: string, after: string]>> = {
  ultravox: ["", ""],
  qwen2a: ["<|audio_bos|>", "<|audio_eos|>"],
  voxtral: ["[BEGIN_AUDIO]", ""],
};

/**
 * Parts of audio in a prompt, in order: texts that mark it, and numbers of windows. Texts are tokenised as parts of the template: names
 * of control tokens are these tokens.
 */
export function audioParts(projector: AudioProjectorKind, windows: number): readonly (string | number)[] {
  const [before, after] = marks[projector];
  const parts = [before, ...Array.from({ length: windows }, (_, window) => window), after];
  return parts.filter((part) => part !== "");
}

/** Error for a request with more audio than the model takes. */
export function tooManyAudioParts(count: number, maxAudio: number, param: string): ServerError {
  const message = `the request has ${count} audio parts; this model takes at most ${maxAudio} (max_num_audio)`;
  return new ServerError("invalid_value", message, { param });
}

/** Error for a request with audio to a model that takes none, on a server that cannot transcribe it. */
export function takesNoAudio(id: string, param: string): ServerError {
  const message =
    `model "${id}" takes no audio: it was loaded without an audio projector file; load it with --mmproj, or serve a Whisper ` +
    "model, which transcribes input_audio";
  return new ServerError("unsupported", message, { param });
}
