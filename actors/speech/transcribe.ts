// Transcription: one call of a model that transcribes. The audio is decoded in a separate process. Calls take turns using the
// model: each audio window is one turn.
import { stat } from "node:fs/promises";
import { decodeAudio } from "../../engines/speech/audio/decode.ts";
import type { TranscribingModel } from "../../engines/speech/speech.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { TranscribeEvent, TranscribeRequest } from "../api/speech/speech.ts";
import type { Call } from "./call.ts";

export async function transcribe(
  model: TranscribingModel,
  { path, language, translates }: TranscribeRequest,
  { limits, signal, send, turn }: Call<TranscribeEvent>,
): Promise<void> {
  const { languages, sampleRate } = model.card;
  if (language !== null && !languages.includes(language)) throw unknownLanguage(language);
  const { size } = await stat(path);
  if (size > limits.maxAudioBytes) {
    throw new ServerError(
      "body_too_large",
      `expected an audio file of at most ${limits.maxAudioBytes} bytes (max_audio_bytes), got ${size}`,
    );
  }
  const samples = await decodeAudio(path, limits.maxAudioSeconds, signal);
  let detected = language ?? "";
  const windows = model
    .transcribe(samples, { language, translates, signal }, (found) => {
      detected = found;
    })
    [Symbol.asyncIterator]();
  let hasBegun = false;
  const begin = async (): Promise<void> => {
    if (hasBegun) return;
    hasBegun = true;
    await send({ type: "begin", language: detected, seconds: samples.length / sampleRate });
  };
  for (;;) {
    const { done, value } = await turn(() => windows.next());
    signal.throwIfAborted();
    await begin();
    if (done === true) break;
    await send({ type: "segments", segments: value });
  }
  await send({ type: "done" });
}

function unknownLanguage(language: string): ServerError {
  const message = `expected the ISO 639-1 code of a language that the model transcribes, got ${JSON.stringify(language)}`;
  return new ServerError("invalid_value", message, { param: "language" });
}
