// Whisper: transcribes audio in windows of 30 seconds, in the ONNX layout of the model hub: config.json, generation_config.json,
// tokenizer.json, onnx/encoder_model.onnx and onnx/decoder_model_merged.onnx.

import { existsSync } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { inOneLine, ServerError } from "../../../runtime/errors.ts";
import {
  checkInputs,
  float32,
  loadOnnx,
  type Onnx,
  type OnnxSession,
  type OnnxTensor,
  openSession,
  runSession,
} from "../../onnx/onnx.ts";
import { sampleRate, windowSamples } from "../audio/audio-window.ts";
import type { SpeechCard, SpeechSpec, TranscribeOptions, TranscribingModel, TranscriptSegment } from "../speech.ts";
import { WhisperDecoder, type WindowText } from "./decoder.ts";
import { MelSpectrogram, windowFrames } from "./mel.ts";
import { WhisperVocabulary } from "./vocabulary.ts";

const configFile = z.object({
  d_model: z.int().min(1),
  decoder_layers: z.int().min(1).max(128),
  decoder_attention_heads: z.int().min(1),
  num_mel_bins: z.int().min(1).max(512),
  suppress_tokens: z.array(z.int().min(0)).nullish(),
  begin_suppress_tokens: z.array(z.int().min(0)).nullish(),
});
const generationFile = configFile.pick({ suppress_tokens: true, begin_suppress_tokens: true });

/** Suffixes of the files' names, in the order of preference. */
const variants = ["", "_quantized", "_int8", "_uint8", "_q4", "_bnb4"];
/**
 * A window is silent if its probability of no speech is above the first number and the mean log probability of its text below the second.
 */
const silence = { noSpeech: 0.6, averageLogprob: -1 };

export async function openWhisper({ path: folder, threads }: SpeechSpec): Promise<TranscribingModel> {
  const onnx = await loadOnnx();
  const config = await readJson(join(folder, "config.json"), configFile);
  const generationPath = join(folder, "generation_config.json");
  const generation = existsSync(generationPath) ? await readJson(generationPath, generationFile) : config;
  const vocabulary = await WhisperVocabulary.read(join(folder, "tokenizer.json"));
  const [encoderPath, decoderPath] = await Promise.all(
    ["encoder_model", "decoder_model_merged"].map((name) => findFile(join(folder, "onnx"), name)),
  );
  const encoder = await openSession(onnx, encoderPath as string, threads);
  checkInputs(encoder, encoderPath as string, ["input_features"]);
  const decoder = await openSession(onnx, decoderPath as string, threads);
  const inputs = ["input_ids", "encoder_hidden_states", "use_cache_branch", "past_key_values.0.decoder.key"];
  checkInputs(decoder, decoderPath as string, inputs);
  const sizes = await Promise.all([encoderPath, decoderPath].map((path) => stat(path as string)));
  const heads = config.decoder_attention_heads;
  if (config.d_model % heads !== 0) {
    const message = `"${folder}/config.json" has d_model ${config.d_model}; expected a multiple of its ${heads} decoder_attention_heads`;
    throw new ServerError("model_file_invalid", message);
  }
  const shape = { layers: config.decoder_layers, heads, headLength: config.d_model / heads };
  const suppressed = { always: generation.suppress_tokens ?? [], first: generation.begin_suppress_tokens ?? [] };
  const card: SpeechCard = {
    engine: "whisper",
    task: "transcribe",
    backend: `onnxruntime ${onnx.env.versions.node ?? ""}`,
    weightBytes: sizes.reduce((sum, { size }) => sum + size, 0),
    sampleRate: sampleRate,
    voices: [],
    languages: [...vocabulary.languages.keys()],
  };
  return new Whisper({
    onnx,
    encoder,
    decoderSession: decoder,
    vocabulary,
    decoder: new WhisperDecoder(onnx, decoder, vocabulary, suppressed, shape),
    mel: new MelSpectrogram(config.num_mel_bins),
    bands: config.num_mel_bins,
    card,
  });
}

interface Parts {
  readonly onnx: Onnx;
  readonly encoder: OnnxSession;
  readonly decoderSession: OnnxSession;
  readonly vocabulary: WhisperVocabulary;
  readonly decoder: WhisperDecoder;
  readonly mel: MelSpectrogram;
  readonly bands: number;
  readonly card: SpeechCard;
}

class Whisper implements TranscribingModel {
  readonly card: SpeechCard;
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.card = parts.card;
  }

  async *transcribe(
    samples: Float32Array,
    { language: asked, translates, signal }: TranscribeOptions,
    onLanguage: (language: string) => void,
  ): AsyncGenerator<readonly TranscriptSegment[]> {
    const { decoder } = this.#parts;
    let language = asked;
    for (let at = 0; at < samples.length; ) {
      if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled");
      const window = samples.subarray(at, at + windowSamples);
      const encoded = await this.#encode(window);
      if (language === null || at === 0) {
        language ??= await decoder.languageOf(encoded);
        onLanguage(language);
      }
      const written = await decoder.write(encoded, language, translates, signal);
      const { segments, advance } = this.#segmentsOf(written, at / sampleRate, window.length / sampleRate);
      if (segments.length > 0) yield segments;
      at += Math.max(sampleRate / 10, Math.round(advance * sampleRate));
    }
  }

  async dispose(): Promise<void> {
    await this.#parts.encoder.release();
    await this.#parts.decoderSession.release();
  }

  async #encode(window: Float32Array): Promise<OnnxTensor> {
    const { onnx, encoder, mel, bands } = this.#parts;
    const input_features = float32(onnx, mel.of(window), [1, bands, windowFrames]);
    const outputs = await runSession(encoder, { input_features });
    const encoded = outputs.last_hidden_state as OnnxTensor | undefined;
    if (encoded === undefined) throw new ServerError("model_failed", "the encoder returned no last_hidden_state");
    return encoded;
  }

  /** Splits the text of a window at its timestamps. `advance`: seconds from the window's start to the next window. */
  #segmentsOf(written: WindowText, start: number, seconds: number) {
    const { vocabulary } = this.#parts;
    const { tokens, averageLogprob, noSpeech } = written;
    if (noSpeech > silence.noSpeech && averageLogprob < silence.averageLogprob)
      return { segments: [], advance: seconds };
    const isTime = tokens.map((token) => vocabulary.isTime(token));
    const cuts = [...tokens.keys()].filter((i) => i > 0 && isTime[i] === true && isTime[i - 1] === true);
    const endsWithOne = isTime.at(-1) === true && isTime.at(-2) !== true;
    const segment = (part: readonly number[], from: number, to: number): readonly TranscriptSegment[] => {
      const own = part.filter((token) => !vocabulary.isTime(token));
      const text = vocabulary.textOf(own);
      const [begin, end] = [start + from, start + Math.min(to, seconds)];
      return text.trim() === "" ? [] : [{ start: begin, end, text, tokens: own, averageLogprob, noSpeech }];
    };
    if (cuts.length === 0) {
      const last = tokens.findLast((token) => vocabulary.isTime(token));
      const end = last === undefined || last === vocabulary.firstTime ? seconds : vocabulary.secondsOf(last);
      return { segments: segment(tokens, 0, end), advance: seconds };
    }
    const ends = endsWithOne ? [...cuts, tokens.length] : cuts;
    const segments = ends.flatMap((end, i) => {
      const part = tokens.slice(ends[i - 1] ?? 0, end);
      return segment(part, vocabulary.secondsOf(part[0] as number), vocabulary.secondsOf(part.at(-1) as number));
    });
    const last = tokens[(cuts.at(-1) as number) - 1] as number;
    return { segments, advance: endsWithOne ? seconds : vocabulary.secondsOf(last) };
  }
}

async function findFile(folder: string, name: string): Promise<string> {
  const files = await readdir(folder).catch((): string[] => []);
  const found = variants.map((variant) => `${name}${variant}.onnx`).find((file) => files.includes(file));
  if (found !== undefined) return join(folder, found);
  throw new ServerError(
    "model_file_invalid",
    `"${folder}" expects ${name}.onnx or a variant (${variants.slice(1).join(", ")})`,
  );
}

async function readJson<T extends z.ZodType>(path: string, schema: T): Promise<z.output<T>> {
  try {
    return schema.parse(JSON.parse(await readFile(path, "utf8")));
  } catch (error) {
    const reason = error instanceof z.ZodError ? inOneLine(z.prettifyError(error)) : String(error);
    throw new ServerError("model_file_invalid", `"${path}" does not describe a Whisper model: ${reason}`);
  }
}
