// Draft model: loads the model that drafts tokens for speculative decoding. Draft and target model must have the same vocabulary.

import type { SpeculationOptions } from "../../engines/decoding/speculation/options.ts";
import type { LoadedModel, LoadProgress } from "../../engines/engine.ts";
import { readModelMetadata, type TokenizerMetadata } from "../../engines/files/gguf/metadata.ts";
import { openEngine } from "../../engines/open-engine.ts";
import { ServerError } from "../../runtime/errors.ts";

type DraftModel = NonNullable<SpeculationOptions["draftModel"]>;

/** Token type of unused tokens, which pad a vocabulary to a round size. */
const unused = 5;

/** Loads the draft model. `targetPath`: file of the target model. Throws config_invalid if the vocabularies differ. */
export async function loadDraftModel(
  targetPath: string,
  { engine, spec }: DraftModel,
  onProgress: LoadProgress,
): Promise<LoadedModel> {
  const [target, draft] = await Promise.all([
    readModelMetadata(targetPath, false),
    readModelMetadata(spec.path, false),
  ]);
  const difference = vocabularyDifference(target.tokenizer, draft.tokenizer);
  if (difference !== null) {
    const message =
      `${spec.path} cannot draft for ${targetPath}: ${difference}; ` +
      "draft_model expects a model with the same vocabulary, such as a smaller one of the same family";
    throw new ServerError("config_invalid", message, { param: "draft_model" });
  }
  return (await openEngine(engine)).load(spec, onProgress);
}

/**
 * Returns how two vocabularies differ; null = they are equal. Additional tokens in one vocabulary do not count as a difference if
 * they are all unused.
 */
export function vocabularyDifference(target: TokenizerMetadata, draft: TokenizerMetadata): string | null {
  const common = Math.min(target.tokens.length, draft.tokens.length);
  for (let id = 0; id < common; id++) {
    if (target.tokens[id] === draft.tokens[id]) continue;
    return `its token ${id} is ${JSON.stringify(draft.tokens[id])}, not ${JSON.stringify(target.tokens[id])}`;
  }
  const longer = target.tokens.length > common ? target : draft;
  for (let id = common; id < longer.tokens.length; id++) {
    if (longer.types?.[id] === unused) continue;
    return `it has ${draft.tokens.length} tokens, not ${target.tokens.length}`;
  }
  return null;
}
