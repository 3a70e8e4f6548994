// Infill tokens of code models: found by their names, because no file of the folder lists them.
import type { VocabularyPairs } from "./kinds/vocabulary.ts";
import { setToken } from "./token-pairs.ts";

/** Known token names by GGUF key. If a vocabulary has several of them, the first in the list is used. */
const namesByKey: Readonly<Record<string, readonly string[]>> = {
  fim_pre: ["<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>"],
  fim_suf: ["<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>"],
  fim_mid: ["<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>"],
  fim_pad: ["<|fim_pad|>", "<fim-pad>", "<fim_pad>"],
  fim_rep: ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
  fim_sep: ["<|file_sep|>"],
};

/** Sets the keys if the vocabulary has the three tokens that precede the parts of an infill prompt. */
export function setInfillTokens({ ids, size, pairs }: VocabularyPairs): void {
  const found = new Map<string, number>();
  for (const [key, names] of Object.entries(namesByKey)) {
    const id = names.map((name) => ids.get(name)).find((one) => one !== undefined && one < size);
    if (id !== undefined) found.set(key, id);
  }
  if (!["fim_pre", "fim_suf", "fim_mid"].every((key) => found.has(key))) return;
  for (const [key, id] of found) setToken(pairs, `${key}_token_id`, id);
}
