// Generation defaults of a model: the settings first, then the model's own values, then the built-in ones.

import { readModelSampling } from "../../engines/files/model-sampling.ts";
import type { DefaultedField } from "../../engines/generation.ts";
import {
  builtInDefaults,
  defaultedFields,
  type GenerationDefaults,
  type SamplingDefaults,
} from "../../engines/sampling-defaults.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { ModelConfig } from "../config/config.ts";

/** Reads the model's own values from the file at `path` and the files beside it. */
export async function generationDefaults(
  { id, sampling: settings, defaultMaxTokens }: ModelConfig,
  path: string,
  log: Logger,
): Promise<GenerationDefaults> {
  const own = await readModelSampling(path, (message) => log.warn({ model: id }, message));
  const sampling: Record<string, number> = {};
  const origins: Record<string, string> = {};
  for (const field of defaultedFields) {
    const configured = settings[field];
    const { value, origin } =
      configured === null ? (own[field] ?? builtIn(field)) : { value: configured, origin: "settings" };
    sampling[field] = value;
    origins[field] = origin;
  }
  return {
    sampling: sampling as unknown as SamplingDefaults,
    origins: origins as GenerationDefaults["origins"],
    maxTokens: defaultMaxTokens,
  };
}

function builtIn(field: DefaultedField) {
  return { value: builtInDefaults.sampling[field], origin: builtInDefaults.origins[field] };
}
