// Kokoro: a StyleTTS2 model in ONNX. Its inputs are the ids of phonemes, a voice's style for that number of phonemes, and a speed.
import { readFile, stat } from "node:fs/promises";
import { basename } from "node:path";
import { z } from "zod";
import { inOneLine, ServerError } from "../../../../runtime/errors.ts";
import { checkInputs, loadOnnx, type Onnx, type OnnxSession, openSession, runSession } from "../../../onnx/onnx.ts";
import { floatsOf, inputsOf, type OnnxPort, tensorFor } from "../../../onnx/tensors.ts";
import type { Phrase, SpeakingModel, SpeechCard, SpeechSpec } from "../../speech.ts";
import { espeakVersion } from "../espeak-process.ts";
import { kokoroFilesIn, kokoroLayout } from "./files.ts";
import { kokoroLanguages, kokoroPhonemes } from "./phonemes.ts";
import { openStyles, type Styles, styleLength } from "./styles.ts";

const sampleRate = 24_000;
/** Maximum number of phonemes per run of the model: it has 512 positions, two of which are for the zeros at both ends. */
const maxPhonemes = 510;
/** Default voice, which the model's author graded best. */
const bestVoice = "af_heart";
/** Names of the input for phonemes, in newer and in older exports. */
const idNames = ["input_ids", "tokens"];
const vocabularyOf = z.record(z.string(), z.int().min(0));
const vocabularyFile = z
  .union([z.object({ model: z.object({ vocab: vocabularyOf }) }), z.object({ vocab: vocabularyOf })])
  .transform((file) => ("model" in file ? file.model.vocab : file.vocab));

interface KokoroInputs {
  readonly ids: OnnxPort;
  readonly style: OnnxPort;
  readonly speed: OnnxPort;
}

export async function openKokoro({
  path: folder,
  threads,
}: Pick<SpeechSpec, "path" | "threads">): Promise<KokoroModel> {
  const files = kokoroFilesIn(folder);
  if (files === null) throw invalid(`"${folder}" expects ${kokoroLayout}; some of them are missing`);
  const onnx = await loadOnnx();
  const version = await espeakVersion();
  const vocabulary = await readVocabulary(files.vocabulary);
  const styles = await openStyles(files.voices, basename(files.voices) === "voices");
  const isFirst = (id: string): number => (id === bestVoice ? 0 : 1);
  const ids = styles.ids.filter((id) => languageOf(id) !== undefined).sort((a, b) => isFirst(a) - isFirst(b));
  if (ids.length === 0) {
    const prefixes = Object.entries(kokoroLanguages).map(([letter, language]) => `${letter}: ${language}`);
    throw invalid(
      `"${files.voices}" expects voices by the letter of their language (${prefixes.join(", ")}); found none`,
    );
  }
  const session = await openSession(onnx, files.model, threads);
  const card: SpeechCard = {
    engine: "kokoro",
    task: "speak",
    backend: `onnxruntime ${onnx.env.versions.node ?? ""}, espeak-ng ${version}`,
    weightBytes: (await stat(files.model)).size,
    sampleRate,
    voices: ids.map((id) => ({ id, language: languageOf(id) ?? "" })),
    languages: [],
  };
  return new KokoroModel(onnx, session, portsOf(session, files.model), styles, vocabulary, card);
}

export class KokoroModel implements SpeakingModel {
  readonly card: SpeechCard;
  readonly #onnx: Onnx;
  readonly #session: OnnxSession;
  readonly #inputs: KokoroInputs;
  readonly #styles: Styles;
  readonly #vocabulary: ReadonlyMap<string, number>;
  readonly #read = new Map<string, Float32Array>();

  constructor(
    onnx: Onnx,
    session: OnnxSession,
    inputs: KokoroInputs,
    styles: Styles,
    vocabulary: ReadonlyMap<string, number>,
    card: SpeechCard,
  ) {
    this.#onnx = onnx;
    this.#session = session;
    this.#inputs = inputs;
    this.#styles = styles;
    this.#vocabulary = vocabulary;
    this.card = card;
  }

  async speak({ text, voice, speed, signal }: Phrase): Promise<Float32Array> {
    const phonemes = await kokoroPhonemes(text, languageOf(voice) ?? "en-us", signal);
    if ([...phonemes].some((sign) => /\p{L}/u.test(sign) && this.#vocabulary.has(sign))) {
      return await this.speakPhonemes(phonemes, voice, speed, signal);
    }
    const message = `expected text that the voice "${voice}" can read, got ${JSON.stringify(text)}`;
    throw new ServerError("invalid_value", message, { param: "input" });
  }

  /** Speaks phonemes. Symbols that the model does not know are left out, as in its author's program. */
  async speakPhonemes(phonemes: string, voice: string, speed: number, signal: AbortSignal): Promise<Float32Array> {
    const known = [...phonemes].filter((sign) => this.#vocabulary.has(sign)).join("");
    const styles = await this.#stylesOf(voice);
    const parts: Float32Array[] = [];
    for (const part of partsOf(known)) {
      if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled");
      parts.push(await this.#speakPart(part, styles, speed));
    }
    return joined(parts);
  }

  async dispose(): Promise<void> {
    this.#styles.close();
    await this.#session.release();
  }

  async #speakPart(phonemes: string, styles: Float32Array, speed: number): Promise<Float32Array> {
    const { ids, style, speed: rate } = this.#inputs;
    const tokens = [...phonemes].map((sign) => this.#vocabulary.get(sign) ?? 0);
    const row = Math.min(tokens.length, styles.length / styleLength) - 1;
    const vector = styles.subarray(row * styleLength, (row + 1) * styleLength);
    const onnx = this.#onnx;
    const outputs = await runSession(this.#session, {
      [ids.name]: tensorFor(onnx, ids, [0, ...tokens, 0], [1, tokens.length + 2]),
      [style.name]: tensorFor(onnx, style, vector, [1, styleLength]),
      [rate.name]: tensorFor(onnx, rate, [speedFor(rate, speed)], [1]),
    });
    return floatsOf(outputs, this.#session.outputNames[0] ?? "");
  }

  async #stylesOf(voice: string): Promise<Float32Array> {
    const styles = this.#read.get(voice) ?? (await this.#styles.read(voice));
    this.#read.set(voice, styles);
    return styles;
  }
}

/** Splits phonemes into parts, one per model run: after the last punctuation mark that fits, else at the last space, else anywhere. */
export function partsOf(phonemes: string, longest = maxPhonemes): string[] {
  const parts: string[] = [];
  let rest = [...phonemes];
  while (rest.length > longest) {
    const head = rest.slice(0, longest);
    const mark = head.findLastIndex((sign) => ",;:.!?—…".includes(sign)) + 1;
    const space = head.lastIndexOf(" ");
    const end = mark > longest / 4 ? mark : space > 0 ? space : longest;
    parts.push(rest.slice(0, end).join("").trim());
    rest = [...rest.slice(end).join("").trim()];
  }
  return [...parts, rest.join("")].filter((part) => part !== "");
}

function joined(parts: readonly Float32Array[]): Float32Array {
  const all = new Float32Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function languageOf(voice: string): string | undefined {
  return kokoroLanguages[voice[0] ?? ""];
}

function portsOf(session: OnnxSession, path: string): KokoroInputs {
  const ports = inputsOf(session);
  const ids = ports.find(({ name }) => idNames.includes(name));
  checkInputs(session, path, [ids?.name ?? idNames.join(" or "), "style", "speed"]);
  const named = (name: string): OnnxPort => ports.find((port) => port.name === name) ?? { name, type: "", shape: [] };
  return { ids: ids ?? named(""), style: named("style"), speed: named("speed") };
}

/** Returns the speed in the form that the model accepts. Some exports accept only integers. */
function speedFor({ type }: OnnxPort, speed: number): number {
  if (type.startsWith("float") || Number.isInteger(speed)) return speed;
  const message = `this export of Kokoro takes whole speeds only (1, 2, 3, 4); got ${speed}`;
  throw new ServerError("invalid_value", message, { param: "speed" });
}

async function readVocabulary(path: string): Promise<ReadonlyMap<string, number>> {
  try {
    return new Map(Object.entries(vocabularyFile.parse(JSON.parse(await readFile(path, "utf8")))));
  } catch (error) {
    throw invalid(
      `"${path}" expects the phonemes of a Kokoro model; it cannot be read: ${inOneLine(String(error)).slice(0, 300)}`,
    );
  }
}

function invalid(message: string): ServerError {
  return new ServerError("model_file_invalid", message, { param: "model_id" });
}
