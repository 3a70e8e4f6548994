// Generation defaults of a model. Each default comes from the settings, else from the model's own files, else it is built in.

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

/** Returns the defaults. The model's own values are read from the file at `path` and from files next to it. */
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
