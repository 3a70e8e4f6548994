// Audio projector: the GGUF file (mmproj) that makes a text model hear. It holds an encoder of Whisper's kind and the projector that
// turns its results into embeddings of the text model's width. This module reads the header. The rules are those of llama.cpp's mtmd.
import { ServerError } from "../../runtime/errors.ts";
import type { GgufValue } from "./gguf/cursor.ts";
import { describeValue } from "./gguf/invalid-file.ts";
import { readTensorTable, type TensorTable } from "./gguf/tensors.ts";

/** Kind of an audio projector: key `clip.audio.projector_type`. */
export type AudioProjectorKind = "ultravox" | "qwen2a" | "voxtral";

/** What a text worker and the scheduler need to know of a model's audio. Plain data. */
export interface AudioRules {
  readonly projector: AudioProjectorKind;
  /** Number of embeddings of a window of 30 seconds. */
  readonly windowTokens: number;
}

export interface AudioEncoderSizes {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  readonly feedForward: number;
  readonly epsilon: number;
  /** Number of bands of the spectrogram. */
  readonly bands: number;
  /** Number of positions that become one embedding, after pairs of them were averaged if `averagesPairs`. */
  readonly stack: number;
  readonly averagesPairs: boolean;
  /** Number of floats of an embedding. */
  readonly length: number;
}

export interface AudioProjectorFile {
  readonly table: TensorTable;
  readonly sizes: AudioEncoderSizes;
  readonly rules: AudioRules;
}

/** Positions of a window of 30 seconds. */
export const windowPositions = 1500;

/** Whether a projector file has an audio encoder and no image encoder. */
export async function takesAudio(path: string): Promise<boolean> {
  const { fields } = await readTensorTable(path);
  return fields.get("clip.has_audio_encoder") === true && fields.get("clip.has_vision_encoder") !== true;
}

/** Reads the header. Throws `unsupported` naming the projector, `model_file_invalid` naming the key. */
export async function readAudioProjectorFile(path: string): Promise<AudioProjectorFile> {
  const table = await readTensorTable(path);
  const { fields, tensors } = table;
  const projector = kindOf(path, fields.get("clip.audio.projector_type") ?? fields.get("clip.projector_type"));
  const count = (key: string, most: number): number => {
    const value = fields.get(`clip.audio.${key}`);
    if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= most) return value;
    throw invalid(path, `its clip.audio.${key} is ${describeValue(value)}; expected a whole number from 1 to ${most}`);
  };
  const epsilon = fields.get("clip.audio.attention.layer_norm_epsilon");
  if (typeof epsilon !== "number" || !(epsilon > 0 && epsilon < 1)) {
    const found = describeValue(epsilon);
    throw invalid(
      path,
      `its clip.audio.attention.layer_norm_epsilon is ${found}; expected a number above 0 and below 1`,
    );
  }
  const last = { ultravox: "mm.a.mlp.2.weight", qwen2a: "mm.a.fc.weight", voxtral: "mm.a.mlp.2.weight" }[projector];
  const length = tensors.get(last)?.shape[1];
  if (length === undefined) throw invalid(path, `has no tensor "${last}"`);
  const stack = projector === "qwen2a" ? 1 : count("projector.stack_factor", 64);
  const averagesPairs = projector === "qwen2a";
  const sizes = {
    layers: count("block_count", 1000),
    width: count("embedding_length", 65_536),
    heads: count("attention.head_count", 1024),
    feedForward: count("feed_forward_length", 262_144),
    bands: count("num_mel_bins", 512),
    ...{ epsilon, stack, averagesPairs, length },
  };
  const positions = averagesPairs ? windowPositions / 2 : windowPositions;
  return { table, sizes, rules: { projector, windowTokens: Math.ceil(positions / stack) } };
}

function kindOf(path: string, kind: GgufValue | undefined): AudioProjectorKind {
  if (kind === "ultravox" || kind === "qwen2a" || kind === "voxtral") return kind;
  throw new ServerError(
    "unsupported",
    `${path} has the audio projector ${describeValue(kind)}; expected ultravox, qwen2a or voxtral (encoders of Whisper's kind)`,
    { param: "mmproj" },
  );
}

function invalid(path: string, problem: string): ServerError {
  return new ServerError("model_file_invalid", `projector file ${path}: ${problem}`, { param: "mmproj" });
}
