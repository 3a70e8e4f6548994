// Text-to-speech: one call of a model that speaks. Each sentence is synthesised, encoded and sent before the next one, so that
// the client hears the first sentence while the others are computed.
import { contentTypeOf, createEncoder } from "../../engines/speech/audio/encode.ts";
import type { SpeakingModel, SpeechVoice } from "../../engines/speech/speech.ts";
import { normalised, sentencesOf } from "../../engines/speech/voices/sentences.ts";
import { ServerError } from "../../runtime/errors.ts";
import { openaiVoice } from "../api/speech/openai-voices.ts";
import type { SpeakEvent, SpeakRequest } from "../api/speech/speech.ts";
import type { Call } from "./call.ts";

/** Silence between two sentences in seconds, at speed 1. */
const pauseSeconds = 0.2;
/** Maximum size of one audio event in bytes. */
const pieceBytes = 64 * 1024;

export async function speak(
  model: SpeakingModel,
  { input, voice: asked, speed, format }: SpeakRequest,
  { limits, signal, send, turn }: Call<SpeakEvent>,
): Promise<void> {
  const { sampleRate, voices } = model.card;
  const voice = voiceNamed(asked, voices);
  if (input.length > limits.maxInputChars) throw tooLong(input.length, limits.maxInputChars);
  const sentences = sentencesOf(normalised(input, voice.language), voice.language);
  if (sentences.length === 0) {
    throw new ServerError("invalid_value", "expected a text with words to speak, got none", { param: "input" });
  }
  const output = new AudioOutput((bytes) => send({ type: "audio", bytes }));
  const encoder = await createEncoder(format, sampleRate, (bytes) => output.write(bytes));
  let hasEnded = false;
  try {
    await send({ type: "begin", contentType: contentTypeOf(format, sampleRate) });
    const pause = Math.round((pauseSeconds / speed) * sampleRate);
    let samples = 0;
    for (const [index, text] of sentences.entries()) {
      const isLast = index === sentences.length - 1;
      const spoken = await turn(() => model.speak({ text, voice: voice.id, speed, signal }));
      const padded = isLast ? spoken : withSilence(spoken, pause);
      samples += padded.length;
      if (samples > limits.maxSpeechSeconds * sampleRate) throw tooMuch(limits.maxSpeechSeconds);
      await encoder.add(padded, isLast);
      await output.sent;
      signal.throwIfAborted();
    }
    await encoder.end();
    hasEnded = true;
    await output.sent;
    await send({ type: "done", seconds: samples / sampleRate, sentences: sentences.length });
  } finally {
    if (!hasEnded) await encoder.cancel();
  }
}

/** Maximum number of voices that an error lists. */
const maxListed = 20;

/** Returns the voice for a voice name. Throws invalid_value with a list of the voices. */
function voiceNamed(name: string | null, voices: readonly SpeechVoice[]): SpeechVoice {
  const own = name === null ? voices[0] : voices.find(({ id }) => id === name);
  const found = own ?? openaiVoice(name ?? "", voices);
  if (found !== null) return found;
  const listed = voices.slice(0, maxListed).map(({ id }) => id);
  const more = voices.length > maxListed ? ` and ${voices.length - maxListed} more (GET /v1/audio/voices)` : "";
  const message = `expected a voice of the model (${listed.join(", ")}${more}) or of OpenAI, got ${JSON.stringify(name)}`;
  throw new ServerError("invalid_value", message, { param: "voice" });
}

/** Output of an audio encoder, sent in pieces as fast as the reader reads them. */
class AudioOutput {
  /** Resolves when all bytes that have been written so far are sent. */
  sent: Promise<void> = Promise.resolve();
  readonly #send: (bytes: Uint8Array) => Promise<void>;
  #waiting: Uint8Array[] = [];

  constructor(send: (bytes: Uint8Array) => Promise<void>) {
    this.#send = send;
  }

  write(bytes: Uint8Array): void {
    this.#waiting.push(bytes);
    if (this.#waiting.length === 1) this.sent = this.sent.then(() => this.#sendWaiting());
  }

  async #sendWaiting(): Promise<void> {
    const bytes = Buffer.concat(this.#waiting);
    this.#waiting = [];
    for (let at = 0; at < bytes.length; at += pieceBytes) await this.#send(bytes.subarray(at, at + pieceBytes));
  }
}

function withSilence(samples: Float32Array, length: number): Float32Array {
  const padded = new Float32Array(samples.length + length);
  padded.set(samples);
  return padded;
}

function tooLong(length: number, limit: number): ServerError {
  const message = `expected at most ${limit} characters (max_input_chars), got ${length}; send the text in parts`;
  return new ServerError("invalid_value", message, { param: "input" });
}

function tooMuch(seconds: number): ServerError {
  const message = `the audio would be longer than ${seconds} s (max_speech_secs); send the text in parts`;
  return new ServerError("invalid_value", message, { param: "input" });
}
