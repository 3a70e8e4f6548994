// Format of a model's files, determined from the name or the first bytes of a file.
import { open } from "node:fs/promises";
import { basename } from "node:path";
import { isUqff } from "./uqff/names.ts";

/** plain: config.json with safetensors; uqff: a UQFF file next to a config.json; gguf; ggml: the format before GGUF. */
export type ModelFormat = "plain" | "uqff" | "gguf" | "ggml";

/** First bytes of GGML files: the letters ggjt, ggmf, ggml and ggla as little-endian numbers. */
const ggmlMagics: readonly string[] = ["tjgg", "fmgg", "lmgg", "algg"];

/** Returns the format of the model at a path. A file with other first bytes counts as GGUF, whose reader refuses it. */
export async function formatOf(path: string): Promise<ModelFormat> {
  if (basename(path) === "config.json") return "plain";
  if (isUqff(path)) return "uqff";
  return ggmlMagics.includes(await firstBytes(path)) ? "ggml" : "gguf";
}

/** Returns the first four bytes of a file, each as a character. */
export async function firstBytes(path: string): Promise<string> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(4), 0, 4, 0);
    return buffer.toString("latin1", 0, bytesRead);
  } finally {
    await file.close();
  }
}
