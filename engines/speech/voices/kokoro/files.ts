// Files of a Kokoro model in a folder. Two layouts are in use: that of the model hub (onnx/model.onnx, voices/NAME.bin, tokenizer.json),
// and that of kokoro-onnx (kokoro-v1.0.onnx, voices-v1.0.bin, config.json), whose voices are in one numpy archive.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

export interface KokoroFiles {
  readonly model: string;
  /** A folder of .bin files, or a numpy archive. */
  readonly voices: string;
  readonly vocabulary: string;
}

/** Files that a folder must have, for error messages. */
export const kokoroLayout =
  "onnx/model.onnx or kokoro*.onnx, voices/ or voices*.bin or voices*.npz, and tokenizer.json, vocab.json or config.json";

/** Model files of the hub, in the order of preference. */
const hubModels = ["model.onnx", "model_quantized.onnx", "model_q8f16.onnx", "model_fp16.onnx"];
const vocabularies = ["tokenizer.json", "vocab.json", "config.json"];

/** Returns the files of the Kokoro model in a folder; null if it has none. */
export function kokoroFilesIn(folder: string): KokoroFiles | null {
  const names = readdirSync(folder).sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
  const ofHub = hubModels.map((name) => join("onnx", name)).find((name) => existsSync(join(folder, name)));
  // Prefers the shortest name, because kokoro-v1.0.onnx has 32-bit floats and kokoro-v1.0.int8.onnx does not.
  const model = ofHub ?? names.find((name) => /^kokoro.*\.onnx$/.test(name));
  const voices = names.find((name) => name === "voices" || /^voices.*\.(?:bin|npz)$/.test(name));
  const vocabulary = vocabularies.find((name) => names.includes(name));
  if (model === undefined || voices === undefined || vocabulary === undefined) return null;
  return { model: join(folder, model), voices: join(folder, voices), vocabulary: join(folder, vocabulary) };
}
