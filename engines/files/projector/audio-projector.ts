// Audio projector: the GGUF file (mmproj) that lets a text model accept audio. It contains a Whisper-like encoder, a conformer, or none, and a
// projector from the encoder's output (or the samples) to embeddings of the text model's width. This module reads the file's header. The rules are those of
// llama.cpp's mtmd.
import { ServerError } from "../../../runtime/errors.ts";
import type { GgufValue } from "../gguf/cursor.ts";
import { describeValue } from "../gguf/invalid-file.ts";
import { readTensorTable, type TensorTable } from "../gguf/tensors.ts";
import { ProjectorHeader } from "./projector-header.ts";

const projectors = ["ultravox", "qwen2a", "voxtral", "gemma4a", "gemma4ua", "lfm2a"] as const;

/**
 * Kind of an audio projector: key `clip.audio.projector_type`. The encoders of gemma4a and lfm2a (LFM2-Audio) are conformers;
 * gemma4ua (Gemma 4 12B) projects the samples of 40 ms and has no encoder.
 */
export type AudioProjectorKind = (typeof projectors)[number];

/** Facts about a model's audio input that text workers and the scheduler need. Plain data. */
export interface AudioRules {
  readonly projector: AudioProjectorKind;
  /** Number of embeddings per full audio window of 30 seconds. Windows may have fewer, unless the encoder is of Whisper's kind. */
  readonly windowTokens: number;
}

export interface AudioEncoderSizes {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  readonly feedForward: number;
  readonly epsilon: number;
  /** Number of bands of the spectrogram, or of samples in a frame if the encoder reads samples. */
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

/** Number of positions of a Whisper-like encoder per audio window of 30 seconds. */
export const windowPositions = 1500;
/** Positions of a window of 30 seconds, and the epsilon of the norms, which files of gemma4a may state wrongly. */
const conformers = {
  gemma4a: { windowTokens: 750, epsilon: 1e-6 },
  lfm2a: { windowTokens: 376, epsilon: 1e-5 },
};
/** Number of samples that gemma4ua projects to one embedding, number of these embeddings per window, and epsilon of its norm. */
export const tokenSamples = 640;
const sampleWindowTokens = 750;
const sampleEpsilon = 1e-6;
/** Name of the last matrix of each projector. */
const lastMatrices: Readonly<Record<AudioProjectorKind, string>> = {
  ultravox: "mm.a.mlp.2.weight",
  qwen2a: "mm.a.fc.weight",
  voxtral: "mm.a.mlp.2.weight",
  gemma4a: "mm.a.input_projection.weight",
  gemma4ua: "mm.a.input_projection.weight",
  lfm2a: "mm.a.mlp.3.weight",
};

/** Whether a tensor belongs to the audio encoder of a projector file, not to its image encoder. */
export function isAudioTensor(name: string): boolean {
  return name.startsWith("a.") || name.startsWith("mm.a.");
}

/** Returns which encoders a projector file has. A file that names none has an image encoder. */
export async function encodersOf(path: string): Promise<{ readonly images: boolean; readonly audio: boolean }> {
  const { fields } = await readTensorTable(path);
  const audio = fields.get("clip.has_audio_encoder") === true;
  return { images: !audio || fields.get("clip.has_vision_encoder") === true, audio };
}

/** Reads the file's header. Throws `unsupported`, which names the projector, or `model_file_invalid`, which names the key. */
export async function readAudioProjectorFile(path: string): Promise<AudioProjectorFile> {
  const table = await readTensorTable(path);
  const { fields, tensors } = table;
  const keys = new ProjectorHeader(path, fields, "audio");
  const projector = kindOf(path, fields.get("clip.audio.projector_type") ?? fields.get("clip.projector_type"));
  const last = lastMatrices[projector];
  const length = tensors.get(last)?.shape[1];
  if (length === undefined) throw keys.invalid(`has no tensor "${last}"`);
  if (projector === "gemma4ua") return samplesFile(keys, table, length);
  const sizes = {
    layers: keys.count("block_count", 1000),
    width: keys.count("embedding_length", 65_536),
    heads: keys.count("attention.head_count", 1024),
    bands: keys.count("num_mel_bins", 512),
    length,
  };
  if (projector === "gemma4a" || projector === "lfm2a") {
    const { windowTokens, epsilon } = conformers[projector];
    // In files of lfm2a, the key feed_forward_length is the encoder's width.
    const feedForward = tensors.get("a.blk.0.ffn_up.weight")?.shape[1] ?? 0;
    const all = { ...sizes, feedForward, epsilon, stack: 1, averagesPairs: false };
    return { table, sizes: all, rules: { projector, windowTokens } };
  }
  const averagesPairs = projector === "qwen2a";
  const stack = averagesPairs ? 1 : keys.count("projector.stack_factor", 64);
  const positions = averagesPairs ? windowPositions / 2 : windowPositions;
  const feedForward = keys.count("feed_forward_length", 262_144);
  const epsilon = keys.positive("attention.layer_norm_epsilon");
  const all = { ...sizes, feedForward, epsilon, stack, averagesPairs };
  return { table, sizes: all, rules: { projector, windowTokens: Math.ceil(positions / stack) } };
}

/** Describes a file that projects samples: an encoder without layers, whose positions are runs of samples. */
function samplesFile(keys: ProjectorHeader, table: TensorTable, length: number): AudioProjectorFile {
  const samples = table.tensors.get(lastMatrices.gemma4ua)?.shape[0];
  if (samples !== tokenSamples)
    throw keys.invalid(`its tensor "${lastMatrices.gemma4ua}" takes ${samples} samples; expected ${tokenSamples}`);
  const sizes = {
    ...{ layers: 0, width: samples, heads: 1, feedForward: 0, epsilon: sampleEpsilon },
    ...{ bands: samples, stack: 1, averagesPairs: false, length },
  };
  return { table, sizes, rules: { projector: "gemma4ua", windowTokens: sampleWindowTokens } };
}

function kindOf(path: string, kind: GgufValue | undefined): AudioProjectorKind {
  const known = projectors.find((name) => name === kind);
  if (known !== undefined) return known;
  const message = `${path} has the audio projector ${describeValue(kind)}; expected ${projectors.join(", ")}`;
  throw new ServerError("unsupported", message, { param: "mmproj" });
}
