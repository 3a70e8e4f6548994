// Vocabulary head: a GGUF file without tensors, made from the tokenizer of a folder in Hugging Face's format. A model whose weights are on
// another server needs no more.
import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { TypedValue } from "../../gguf/typed-value.ts";
import { ggufHead } from "../../gguf/writer.ts";
import { addSampling } from "../generation.ts";
import { readJsonObject } from "../json-file.ts";
import { Pairs } from "../pairs.ts";
import { tokenizerPairs } from "./tokenizer-pairs.ts";

/** Value of general.architecture if no config.json names the kind of model. It has no effect on the vocabulary. */
const unknownArchitecture = "remote";

/**
 * Returns the bytes of the GGUF file. `path`: a folder with a tokenizer, or a file in the format of tokenizer.json. The sampling settings
 * are read from generation_config.json in the same folder. Throws `model_file_invalid`.
 */
export async function vocabularyHead(path: string, warn: (message: string) => void): Promise<Buffer> {
  const folder = (await stat(path).catch(() => null))?.isDirectory() ? path : dirname(path);
  const config = (await readJsonObject(join(folder, "config.json"))) ?? {};
  const architecture = typeof config.model_type === "string" ? config.model_type : unknownArchitecture;
  const sampling = new Pairs(architecture, join(folder, "generation_config.json"));
  addSampling((await readJsonObject(join(folder, "generation_config.json"))) ?? {}, sampling);
  const pairs = new Map<string, TypedValue>([
    ["general.architecture", { type: "string", value: architecture }],
    ["general.name", { type: "string", value: basename(folder) }],
    ...sampling.values,
    ...(await tokenizerPairs(path, null, warn)),
  ]);
  return ggufHead(pairs, []).bytes;
}
