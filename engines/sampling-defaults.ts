// Generation defaults: a model's sampling settings and output limit, used for the fields that a request does not set.
import type { DefaultedField, RequestedSampling, Sampling } from "./generation.ts";

export type SamplingDefaults = Pick<Sampling, DefaultedField>;

export interface GenerationDefaults {
  readonly sampling: SamplingDefaults;
  /** Source of each value, for the log: the settings, a key of the model, or built in. */
  readonly origins: Readonly<Record<DefaultedField, string>>;
  /** Maximum number of generated tokens; null: until the context is full. */
  readonly maxTokens: number | null;
}

/** Values for fields that are set neither by the request, nor by the settings, nor by the model. */
export const builtInSampling: SamplingDefaults = {
  temperature: 0.8,
  topK: 40,
  topP: 0.95,
  minP: 0.05,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
};

export const defaultedFields = Object.keys(builtInSampling) as readonly DefaultedField[];

/** Defaults of a model without settings of its own. */
export const builtInDefaults: GenerationDefaults = {
  sampling: builtInSampling,
  origins: Object.fromEntries(defaultedFields.map((field) => [field, "built in"])) as GenerationDefaults["origins"],
  maxTokens: null,
};

/** A value that overrides a built-in default. */
export interface OwnSetting {
  readonly value: number;
  /** Source of the value, for the log. */
  readonly origin: string;
}

/** Returns the defaults of a model: its own values, and the built-in values for the other fields. */
export function defaultsOf(
  own: Readonly<Partial<Record<DefaultedField, OwnSetting>>>,
  maxTokens: number | null,
): GenerationDefaults {
  const ownValue = (field: DefaultedField) => [field, own[field]?.value ?? builtInSampling[field]] as const;
  const ownOrigin = (field: DefaultedField) => [field, own[field]?.origin ?? builtInDefaults.origins[field]] as const;
  return {
    sampling: Object.fromEntries(defaultedFields.map(ownValue)) as unknown as SamplingDefaults,
    origins: Object.fromEntries(defaultedFields.map(ownOrigin)) as GenerationDefaults["origins"],
    maxTokens,
  };
}

/** Returns the sampling settings of a request. Fields that the request leaves out get the model's values. */
export function effectiveSampling(requested: RequestedSampling, { sampling }: GenerationDefaults): Sampling {
  const values = defaultedFields.map((field) => [field, requested[field] ?? sampling[field]]);
  return { ...requested, ...(Object.fromEntries(values) as SamplingDefaults) };
}
