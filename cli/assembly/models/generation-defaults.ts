// Generation defaults of a model: the settings first, then the model's own values, then the built-in ones.

import { readModelSampling } from "../../../engines/files/model-sampling.ts";
import type { DefaultedField } from "../../../engines/generation.ts";
import {
  defaultedFields,
  defaultsOf,
  type GenerationDefaults,
  type OwnSetting,
} from "../../../engines/sampling-defaults.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { ModelConfig } from "../../config/config.ts";

/** Reads the model's own values from the file at `path` and the files beside it. */
export async function generationDefaults(
  { id, sampling: settings, defaultMaxTokens }: ModelConfig,
  path: string,
  log: Logger,
): Promise<GenerationDefaults> {
  const own: Partial<Record<DefaultedField, OwnSetting>> = {
    ...(await readModelSampling(path, (message) => log.warn({ model: id }, message))),
  };
  for (const field of defaultedFields) {
    const value = settings[field];
    if (value !== null) own[field] = { value, origin: "settings" };
  }
  return defaultsOf(own, defaultMaxTokens);
}
