// Drafter selection: the smaller model if one is configured, else the model's own MTP heads. Called by Speculation.
import { performance } from "node:perf_hooks";
import { ServerError } from "../../../runtime/errors.ts";
import type { MtpHeads } from "../../engine.ts";
import type { Drafter } from "./drafter.ts";
import { ModelDrafter } from "./model-drafter.ts";
import { chooseLikeliest, MtpDrafter } from "./mtp-drafter.ts";
import type { SpeculationParts } from "./options.ts";

/**
 * Opens the drafter; null if there is neither a smaller model nor MTP heads. Throws config_invalid if
 * the smaller model cannot draft.
 */
export function openDrafter(parts: SpeculationParts): Drafter | null {
  const { model, draft, now = () => performance.now() } = parts;
  if (draft === null) return model.mtp ? openMtp(model.mtp, parts, now) : null;
  if (!draft.capabilities.truncate || !draft.capabilities.generates) {
    const message = `${draft.card.path} cannot draft: draft_model expects a model that generates and can drop its last tokens`;
    throw new ServerError("config_invalid", message, { param: "draft_model" });
  }
  return new ModelDrafter(draft, Math.min(model.card.vocabSize, draft.card.vocabSize), now);
}

function openMtp(heads: MtpHeads, { model, options, choose }: SpeculationParts, now: () => number): Drafter {
  const likeliest = chooseLikeliest(model.card.vocabSize);
  return new MtpDrafter(heads, {
    maxDepth: Math.min(options.mtpTokens ?? heads.trainedTokens, options.maxDraftTokens),
    maxSequences: model.capacity.maxSequences,
    choose: options.mtpSampling === "greedy" ? likeliest : (choose ?? likeliest),
    now,
  });
}
