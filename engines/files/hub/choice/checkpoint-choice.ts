// Checkpoint choice: the files of a model in Hugging Face's format (config.json, safetensors, tokenizer) among the files of a
// repository or folder. Works on names only.
import { basename } from "node:path";
import { isUqff, residualFile } from "../../uqff/names.ts";
import { chooseShards, missingFile, type UqffChoice } from "./uqff-choice.ts";

/** File whose path stands for the whole checkpoint. */
export const checkpointFile = "config.json";

const indexFile = "model.safetensors.index.json";
const singleFile = "model.safetensors";
const weights = /^model(?:-\d+-of-\d+)?\.safetensors$/;
const others: ReadonlySet<string> = new Set([
  ...["generation_config.json", "model.safetensors.index.json"],
  ...["modules.json", "config_sentence_transformers.json", "artifact.metadata"],
  ...["tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"],
  ...["vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "chat_template.json"],
  ...["preprocessor_config.json", "processor_config.json"],
]);
/** Files of sentence-transformers modules, such as 1_Pooling/config.json and 2_Dense/model.safetensors. */
const parts = /^\d+_\w+\/(?:config\.json|model\.safetensors)$/;
const templates = /^additional_chat_templates\/[^/]+\.jinja$/;

/** Returns the files of the checkpoint, config.json first; null if `paths` have no checkpoint at their root. */
export function checkpointFiles(paths: readonly string[]): readonly string[] | null {
  const isCheckpoint = paths.includes(checkpointFile) && paths.some((path) => weights.test(path));
  if (!isCheckpoint) return null;
  const small = smallFiles(paths);
  const shards = paths.filter((path) => weights.test(path));
  // If there is an index, the model is in the shards, and a single file next to them is a copy.
  const isSharded = paths.includes(indexFile) && shards.length > 1;
  const needed = isSharded ? shards.filter((path) => path !== singleFile) : shards.filter(isOnly(shards));
  return [checkpointFile, ...small, ...needed.sort()];
}

/**
 * Returns the files of a model whose weights are in UQFF: the first shard, the other shards, and the files that are not quantized. Throws
 * `model_file_invalid` if no shards match the choice, or if a file is missing.
 */
export function uqffFiles(paths: readonly string[], choice: UqffChoice): readonly string[] {
  const shards = chooseShards(paths, choice);
  for (const needed of [residualFile, checkpointFile]) {
    if (!paths.includes(needed)) throw missingFile(needed, shards[0] ?? "", choice);
  }
  return [...shards, residualFile, checkpointFile, ...smallFiles(paths)];
}

function smallFiles(paths: readonly string[]): string[] {
  return paths.filter((path) => others.has(path) || parts.test(path) || templates.test(path)).sort();
}

/** Returns a filter for weight files if there is no index: only the single file if it exists, else all files. */
function isOnly(shards: readonly string[]): (path: string) => boolean {
  return shards.includes(singleFile) ? (path) => path === singleFile : () => true;
}

/** Whether a resolved path stands for a checkpoint: a config.json or a UQFF shard. The other files are in the same folder. */
export function isCheckpoint(path: string): boolean {
  return basename(path) === checkpointFile || isUqff(path);
}
