// Audio projector: the GGUF file (mmproj) that lets a text model accept audio. It contains a Whisper-like encoder, and a projector from the
// encoder's output to embeddings of the text model's width. This module reads the file's header. The rules are those of llama.cpp's mtmd.
import { ServerError } from "../../runtime/errors.ts";
import type { GgufValue } from "./gguf/cursor.ts";
import { describeValue } from "./gguf/invalid-file.ts";
import { readTensorTable, type TensorTable } from "./gguf/tensors.ts";
import { ProjectorHeader } from "./projector-header.ts";

/** Kind of an audio projector: key `clip.audio.projector_type`. */
export type AudioProjectorKind = "ultravox" | "qwen2a" | "voxtral";

/** Facts about a model's audio input that text workers and the scheduler need. Plain data. */
export interface AudioRules {
  readonly projector: AudioProjectorKind;
  /** Number of embeddings per audio window of 30 seconds. */
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
  /** Number of neighbouring encoder positions that become one embedding. If `averagesPairs`, an averaged pair counts as one position. */
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

/** Number of encoder positions per audio window of 30 seconds. */
export const windowPositions = 1500;

/** Whether a projector file has an audio encoder and no image encoder. */
export async function isAudioProjector(path: string): Promise<boolean> {
  const { fields } = await readTensorTable(path);
  return fields.get("clip.has_audio_encoder") === true && fields.get("clip.has_vision_encoder") !== true;
}

/** Reads the file's header. Throws `unsupported`, which names the projector, or `model_file_invalid`, which names the key. */
export async function readAudioProjectorFile(path: string): Promise<AudioProjectorFile> {
  const table = await readTensorTable(path);
  const { fields, tensors } = table;
  const keys = new ProjectorHeader(path, fields, "audio");
  const projector = kindOf(path, fields.get("clip.audio.projector_type") ?? fields.get("clip.projector_type"));
  const epsilon = keys.positive("attention.layer_norm_epsilon");
  const last = { ultravox: "mm.a.mlp.2.weight", qwen2a: "mm.a.fc.weight", voxtral: "mm.a.mlp.2.weight" }[projector];
  const length = tensors.get(last)?.shape[1];
  if (length === undefined) throw keys.invalid(`has no tensor "${last}"`);
  const stack = projector === "qwen2a" ? 1 : keys.count("projector.stack_factor", 64);
  const averagesPairs = projector === "qwen2a";
  const sizes = {
    layers: keys.count("block_count", 1000),
    width: keys.count("embedding_length", 65_536),
    heads: keys.count("attention.head_count", 1024),
    feedForward: keys.count("feed_forward_length", 262_144),
    bands: keys.count("num_mel_bins", 512),
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
