// Checkpoint choice: the files of a model in Hugging Face's format (config.json, safetensors, tokenizer) among the files of a
// repository or folder. Works on names only.
import { basename } from "node:path";

/** File that stands for the whole model: its path names a checkpoint. */
export const checkpointFile = "config.json";

const weights = /^(?:model|pytorch_model)(?:-\d+-of-\d+)?\.safetensors$/;
const others: ReadonlySet<string> = new Set([
  ...["generation_config.json", "model.safetensors.index.json", "modules.json", "1_Pooling/config.json"],
  ...["tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"],
  ...["vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "chat_template.json"],
]);
const templates = /^additional_chat_templates\/[^/]+\.jinja$/;

/** Returns the files of the checkpoint, config.json first; null if `paths` have no checkpoint at their root. */
export function checkpointFiles(paths: readonly string[]): readonly string[] | null {
  const isCheckpoint = paths.includes(checkpointFile) && paths.some((path) => weights.test(path));
  if (!isCheckpoint) return null;
  const rest = paths.filter((path) => weights.test(path) || others.has(path) || templates.test(path));
  return [checkpointFile, ...rest.sort()];
}

/** Whether a resolved path stands for a checkpoint. Its folder has the other files. */
export function isCheckpoint(path: string): boolean {
  return basename(path) === checkpointFile;
}
