// Kokoro: a StyleTTS2 model in ONNX, in the layout of its repository on the model hub: onnx/model.onnx, voices/NAME.bin and
// tokenizer.json. espeak-ng makes the phonemes, so only voices of languages whose phonemes are those of espeak-ng are used.
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { inOneLine, ServerError } from "../../../runtime/errors.ts";
import {
  checkInputs,
  float32,
  int64,
  loadOnnx,
  type Onnx,
  type OnnxSession,
  openSession,
  runSession,
} from "../../onnx/onnx.ts";
import { floatsOf } from "../../onnx/tensors.ts";
import type { Phrase, SpeakingModel, SpeechCard, SpeechSpec } from "../speech.ts";
import { espeakVersion } from "./espeak-process.ts";
import { phonemesOf } from "./phonemes.ts";

/** Languages by the first letter of a voice. Japanese (j) and Chinese (z) have phonemes of their own. */
const languages: Readonly<Record<string, string>> = {
  a: "en-us",
  b: "en-gb",
  e: "es",
  f: "fr-fr",
  h: "hi",
  i: "it",
  p: "pt-br",
};
/** Phonemes of espeak-ng that the model knows by another sign. */
const otherSigns: Readonly<Record<string, string>> = { r: "ɹ", x: "k", ʲ: "j", ɬ: "l" };
const sampleRate = 24_000;
const maxPhonemes = 510;
const styleLength = 256;
const tokenizer = z.object({ model: z.object({ vocab: z.record(z.string(), z.int().min(0)) }) });
/** Model files, in the order of preference. */
export const kokoroFiles = ["model.onnx", "model_quantized.onnx", "model_q8f16.onnx", "model_fp16.onnx"];

export async function openKokoro({ path: folder, threads }: SpeechSpec): Promise<SpeakingModel> {
  const onnx = await loadOnnx();
  const version = await espeakVersion();
  const vocabulary = await readVocabulary(join(folder, "tokenizer.json"));
  const files = await readdir(join(folder, "onnx"));
  const name = kokoroFiles.find((file) => files.includes(file));
  if (name === undefined) throw invalid(`"${folder}/onnx" expects one of ${kokoroFiles.join(", ")}; found none`);
  const path = join(folder, "onnx", name);
  const session = await openSession(onnx, path, threads);
  checkInputs(session, path, ["input_ids", "style", "speed"]);
  const all = (await readdir(join(folder, "voices"))).filter((file) => file.endsWith(".bin")).sort();
  const ids = all.map((file) => file.slice(0, -".bin".length)).filter((id) => languages[id[0] ?? ""] !== undefined);
  if (ids.length === 0)
    throw invalid(`"${folder}/voices" expects voices of ${Object.values(languages).join(", ")}; found none`);
  const card: SpeechCard = {
    engine: "kokoro",
    task: "speak",
    backend: `onnxruntime ${onnx.env.versions.node ?? ""}, espeak-ng ${version}`,
    weightBytes: (await stat(path)).size,
    sampleRate,
    voices: ids.map((id) => ({ id, language: languages[id[0] ?? ""] ?? "" })),
    languages: [],
  };
  return new KokoroModel(onnx, session, folder, vocabulary, card);
}

class KokoroModel implements SpeakingModel {
  readonly card: SpeechCard;
  readonly #onnx: Onnx;
  readonly #session: OnnxSession;
  readonly #folder: string;
  readonly #vocabulary: ReadonlyMap<string, number>;
  readonly #styles = new Map<string, Float32Array>();

  constructor(
    onnx: Onnx,
    session: OnnxSession,
    folder: string,
    vocabulary: ReadonlyMap<string, number>,
    card: SpeechCard,
  ) {
    this.#onnx = onnx;
    this.#session = session;
    this.#folder = folder;
    this.#vocabulary = vocabulary;
    this.card = card;
  }

  async speak({ text, voice, speed, signal }: Phrase): Promise<Float32Array> {
    const phonemes = await phonemesOf(text, languages[voice[0] ?? ""] ?? "en-us", signal);
    const known = [...phonemes].flatMap((sign) => this.#vocabulary.get(otherSigns[sign] ?? sign) ?? []);
    const ids = known.slice(0, maxPhonemes);
    const styles = await this.#stylesOf(voice);
    const row = Math.min(ids.length, styles.length / styleLength - 1);
    const style = styles.slice(row * styleLength, (row + 1) * styleLength);
    if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled");
    const onnx = this.#onnx;
    const outputs = await runSession(this.#session, {
      input_ids: int64(onnx, [0, ...ids, 0], [1, ids.length + 2]),
      style: float32(onnx, style, [1, styleLength]),
      speed: float32(onnx, Float32Array.of(speed), [1]),
    });
    return floatsOf(outputs, this.#session.outputNames[0] ?? "waveform");
  }

  async dispose(): Promise<void> {
    await this.#session.release();
  }

  /** Returns the style vectors of a voice, one for each number of phonemes. */
  async #stylesOf(voice: string): Promise<Float32Array> {
    const found = this.#styles.get(voice);
    if (found !== undefined) return found;
    const bytes = await readFile(join(this.#folder, "voices", `${voice}.bin`));
    if (bytes.length === 0 || bytes.length % (4 * styleLength) !== 0) {
      throw invalid(`the voice "${voice}" expects vectors of ${styleLength} floats; got ${bytes.length} bytes`);
    }
    const styles = new Float32Array(new Uint8Array(bytes).buffer);
    this.#styles.set(voice, styles);
    return styles;
  }
}

async function readVocabulary(path: string): Promise<ReadonlyMap<string, number>> {
  try {
    const { model } = tokenizer.parse(JSON.parse(await readFile(path, "utf8")));
    return new Map(Object.entries(model.vocab));
  } catch (error) {
    throw invalid(
      `"${path}" expects the phonemes of a Kokoro model; it cannot be read: ${inOneLine(String(error)).slice(0, 300)}`,
    );
  }
}

function invalid(message: string): ServerError {
  return new ServerError("model_file_invalid", message, { param: "model_id" });
}
