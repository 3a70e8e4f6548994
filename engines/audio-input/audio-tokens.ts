// Audio tokens: the part of a prompt that stands for audio. Each window of 30 seconds is a run of placeholders; tags, if the model has any,
// surround all windows. The tags are those of llama.cpp's mtmd.
import { ServerError } from "../../runtime/errors.ts";
import type { AudioProjectorKind } from "../files/projector/audio-projector.ts";

const marks: Readonly<Record<AudioProjectorKind, readonly [before: string, after: string]>> = {
  ultravox: ["", ""],
  qwen2a: ["<|audio_bos|>", "<|audio_eos|>"],
  voxtral: ["[BEGIN_AUDIO]", ""],
  gemma4a: ["<|audio>", "<audio|>"],
  gemma4ua: ["<|audio>", "<audio|>"],
  lfm2a: ["", ""],
};

/**
 * Returns the parts of a prompt that stand for audio, in order: tags (strings) and windows (indices). Tags are tokenised like the text of
 * the chat template: the name of a control token becomes that token.
 */
export function audioParts(projector: AudioProjectorKind, windows: number): readonly (string | number)[] {
  const [before, after] = marks[projector];
  const parts = [before, ...Array.from({ length: windows }, (_, window) => window), after];
  return parts.filter((part) => part !== "");
}

/** Returns the error for a request with more audio than the model accepts. */
export function tooManyAudioParts(count: number, maxAudio: number, param: string): ServerError {
  const message = `the request has ${count} audio parts; this model takes at most ${maxAudio} (max_num_audio)`;
  return new ServerError("invalid_value", message, { param });
}

/** Returns the error for a request with audio if the model accepts none and the server cannot transcribe it. */
export function takesNoAudio(id: string, param: string): ServerError {
  const message =
    `model "${id}" takes no audio: it was loaded without an audio encoder; load it with --mmproj and a max_num_audio above 0, or serve ` +
    "a Whisper model, which transcribes input_audio";
  return new ServerError("unsupported", message, { param });
}
