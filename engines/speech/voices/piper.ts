// Piper voices: a VITS model in ONNX (NAME.onnx) and its config (NAME.onnx.json). espeak-ng makes the phonemes.
import { readFile, stat } from "node:fs/promises";
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

const description = z.object({
  audio: z.object({ sample_rate: z.int().min(8000).max(48_000) }),
  espeak: z.object({ voice: z.string().regex(/^[\w-]{1,40}$/) }),
  inference: z
    .object({ noise_scale: z.number(), length_scale: z.number().positive(), noise_w: z.number() })
    .default({ noise_scale: 0.667, length_scale: 1, noise_w: 0.8 }),
  phoneme_type: z.string().default("espeak"),
  phoneme_id_map: z.record(z.string(), z.array(z.int().min(0))),
  num_speakers: z.int().min(1).default(1),
  speaker_id_map: z.record(z.string(), z.int().min(0)).default({}),
});

type Description = z.output<typeof description>;

/** Special symbols in the phoneme table: beginning and end of a sentence, and padding between two phonemes. */
const [begin, end, pad] = ["^", "$", "_"];

export async function openPiper({ path, threads }: SpeechSpec): Promise<SpeakingModel> {
  const onnx = await loadOnnx();
  const version = await espeakVersion();
  const about = await readDescription(`${path}.json`);
  const session = await openSession(onnx, path, threads);
  const isMany = about.num_speakers > 1;
  checkInputs(session, path, ["input", "input_lengths", "scales", ...(isMany ? ["sid"] : [])]);
  const language = about.espeak.voice;
  const named = Object.keys(about.speaker_id_map);
  const ids = isMany && named.length > 0 ? named : [(path.split(/[\\/]/).at(-1) ?? path).replace(/\.onnx$/, "")];
  const card: SpeechCard = {
    engine: "piper",
    task: "speak",
    backend: `onnxruntime ${onnx.env.versions.node ?? ""}, espeak-ng ${version}`,
    weightBytes: (await stat(path)).size,
    sampleRate: about.audio.sample_rate,
    voices: ids.map((id) => ({ id, language })),
    languages: [],
  };
  return new PiperModel(onnx, session, about, card);
}

class PiperModel implements SpeakingModel {
  readonly card: SpeechCard;
  readonly #onnx: Onnx;
  readonly #session: OnnxSession;
  readonly #about: Description;

  constructor(onnx: Onnx, session: OnnxSession, about: Description, card: SpeechCard) {
    this.#onnx = onnx;
    this.#session = session;
    this.#about = about;
    this.card = card;
  }

  async speak({ text, voice, speed, signal }: Phrase): Promise<Float32Array> {
    const { espeak, inference, speaker_id_map: speakers, num_speakers } = this.#about;
    const ids = this.#idsOf(await phonemesOf(text, espeak.voice, signal));
    if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled");
    const { noise_scale, length_scale, noise_w } = inference;
    const onnx = this.#onnx;
    const outputs = await runSession(this.#session, {
      input: int64(onnx, ids, [1, ids.length]),
      input_lengths: int64(onnx, [ids.length], [1]),
      scales: float32(onnx, Float32Array.of(noise_scale, length_scale / speed, noise_w), [3]),
      ...(num_speakers > 1 ? { sid: int64(onnx, [speakers[voice] ?? 0], [1]) } : {}),
    });
    return floatsOf(outputs, "output");
  }

  async dispose(): Promise<void> {
    await this.#session.release();
  }

  /** Returns the ids of phonemes. Phonemes that the voice does not know are left out, as Piper does. */
  #idsOf(phonemes: string): number[] {
    const table = this.#about.phoneme_id_map;
    const between = table[pad] ?? [];
    const ids = [...(table[begin] ?? []), ...between];
    for (const phoneme of phonemes.normalize("NFD")) {
      const own = Object.hasOwn(table, phoneme) ? table[phoneme] : undefined;
      if (own !== undefined) ids.push(...own, ...between);
    }
    return [...ids, ...(table[end] ?? [])];
  }
}

async function readDescription(path: string): Promise<Description> {
  let value: unknown;
  try {
    value = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    throw invalid(`a Piper voice expects its description in "${path}", which cannot be read: ${String(error)}`);
  }
  const { success, data, error } = description.safeParse(value);
  if (!success)
    throw invalid(`"${path}" is not the description of a Piper voice: ${inOneLine(z.prettifyError(error))}`);
  if (data.phoneme_type === "espeak") return data;
  throw invalid(
    `"${path}" expects phonemes of "${data.phoneme_type}"; only voices with phonemes of espeak can be used`,
  );
}

function invalid(message: string): ServerError {
  return new ServerError("model_file_invalid", message, { param: "model_id" });
}
