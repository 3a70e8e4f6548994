// Request fields that several text protocols share: their schemas, their translation to sampling parameters, and functions that
// define rejected and ignored fields. The API document is generated from the schemas.
import { z } from "zod";
import type { Dry, RequestedSampling } from "../../../engines/generation.ts";
import { expected } from "../../issues.ts";
import { adapterField } from "./adapter-field.ts";
import { type Conflict, differing } from "./conflicts.ts";
import { grammarField, guidedFields } from "./grammar-fields.ts";

/** Maximum number of choices in one request. */
export const MAX_CHOICES = 64;
const MAX_PRIORITY = 1000;
const MAX_STOP_STRINGS = 16;
const MAX_STOP_LENGTH = 1024;
const MAX_STOP_TOKENS = 64;
export const MAX_MODEL_LENGTH = 4096;
/** Maximum number of DRY sequence breakers; limited because every token of the vocabulary is searched for each breaker. */
const MAX_BREAKERS = 64;
/** Maximum number of biased tokens; limited because every choice of a request has a copy of the biases. */
const MAX_BIASED_TOKENS = 4096;
/** Maximum repetition penalty. A larger penalty overflows a logit to minus infinity, which bans the token. */
const MAX_REPETITION_PENALTY = 100;
/** Sentence about the default, for the descriptions of fields whose default depends on the model. */
const byModel = "Default: the model's, see `defaults` in GET /v1/models";
const defaultBreakers = ["\n", ":", '"', "*"];

/**
 * Creates a field of the API contract that is not implemented yet. Null, and values for which `isNeutral` returns true, are
 * accepted. All other values are rejected with an error that names the field.
 */
export function notBuiltYet(what: string, isNeutral?: (value: unknown) => boolean) {
  return refused(notYet(what), isNeutral);
}

/**
 * Creates a field that will never be supported. `message`: the reason, and what to send instead. Null, and values for which
 * `isNeutral` returns true, are accepted.
 */
export function refused(message: string, isNeutral: (value: unknown) => boolean = () => false) {
  return z
    .unknown()
    .superRefine((value, context) => {
      if (value !== null && !isNeutral(value)) context.addIssue(refusalIssue(message));
    })
    .optional()
    .meta({ support: "refused", description: `Refused: ${message}` });
}

/** Schema of union variants that the server rejects: objects with one of these values of `type`. Parsing always fails. */
export type RefusedVariants<Types extends readonly string[]> = z.ZodPipe<
  z.ZodObject<{ type: z.ZodEnum<z.core.util.ToEnum<Types[number]>> }, z.core.$loose>,
  z.ZodTransform<never, { [field: string]: unknown; type: z.core.util.ToEnum<Types[number]>[Types[number]] }>
>;

/** Creates the rejected variants of a union with the discriminator `type`. `message`: returns the error text for a type. */
export function refusedVariants<const Types extends readonly [string, ...string[]]>(
  types: Types,
  message: (type: Types[number]) => string,
): RefusedVariants<Types> {
  const messages = new Set(types.map(message));
  const reason = messages.size === 1 ? message(types[0]) : "these types are not supported";
  return z
    .looseObject({ type: z.enum(types) })
    .meta({ support: "refused", description: `Refused: ${reason}` })
    .transform(({ type }, context): never => {
      context.addIssue(refusalIssue(message(type)));
      return z.NEVER;
    });
}

/** Creates a field that is accepted for compatibility: it is validated but has no effect, and its first use is logged. */
export function ignored<Schema extends z.ZodType>(schema: Schema, why: string) {
  return schema.nullish().meta({ support: "ignored", description: `Ignored: ${why}` });
}

/** Creates a validation issue with the error code `unsupported`. `field`: name of the invalid field within the value. */
export function refusalIssue(message: string, field?: string) {
  const params = { code: "unsupported", ...(field === undefined ? {} : { field }) };
  return { code: "custom" as const, message, params };
}

export function notYet(what: string): string {
  return `${what} is not supported by this server yet`;
}

export const isEmptyArray = (value: unknown): boolean => Array.isArray(value) && value.length === 0;

// Half of a surrogate pair. Stop strings must not contain one, because it would match within a character and split it.
const halfCharacter = /\p{Surrogate}/u;
const stopString = z
  .string()
  .min(1)
  .max(MAX_STOP_LENGTH)
  .refine((text) => !halfCharacter.test(text), { error: expected("a string of whole characters") });

export const stopStringList = z.array(stopString).max(MAX_STOP_STRINGS);

export const streamField = z
  .boolean()
  .nullish()
  .meta({ description: "Stream the response as server-sent events.", default: false });

/** Fields with the maximum number of output tokens. `least`: 0 if the endpoint can compute a prompt without output. */
export function limitFields(least: 0 | 1) {
  const empty = least === 0 ? " 0 computes only the prompt, for its logprobs (with echo) or the prefix cache." : "";
  const description = `Maximum number of output tokens.${empty} ${byModel}; without one, the rest of the context.`;
  return {
    max_tokens: z.int().min(least).nullish().meta({ description }),
    max_completion_tokens: z.int().min(least).nullish().meta({ description: "Alias of max_tokens." }),
    n_predict: z
      .int()
      .min(-1)
      .refine((tokens) => tokens < 0 || tokens >= least, { error: expected("a number of tokens, or -1 for no limit") })
      .nullish()
      .meta({ description: "Alias of max_tokens, as llama-server names it; -1 is no limit." }),
  };
}

export const commonFields = {
  model: z.string().max(MAX_MODEL_LENGTH).nullish().meta({
    description:
      'Id of a model, or of a model with an adapter, as listed by GET /v1/models; "default" is the default model.',
    default: "default",
  }),
  n: z.int().min(1).max(MAX_CHOICES).nullish().meta({ description: "Number of independent completions.", default: 1 }),
  stop: z
    .union([stopString, stopStringList], {
      error: expected(`a string or an array of at most ${MAX_STOP_STRINGS} strings`),
    })
    .nullish()
    .meta({ description: "Strings that end the output; the output does not contain them." }),
  ...limitFields(1),
  min_tokens: z.int().min(0).nullish().meta({
    description:
      "Minimum number of output tokens. Until then, end-of-generation tokens and stop_token_ids are not sampled, and stop strings do not end the output. A grammar that allows no other token still ends it.",
    default: 0,
  }),
  stop_token_ids: z
    .array(z.int().min(0))
    .max(MAX_STOP_TOKENS)
    .nullish()
    .meta({ description: "Tokens that end the output, also with ignore_eos; the output does not contain them." }),
  ignore_eos: z.boolean().nullish().meta({ description: "Continue after an end-of-generation token.", default: false }),
  truncate_sequence: z
    .boolean()
    .nullish()
    .meta({ description: "Truncate a prompt that exceeds the context instead of refusing it.", default: false }),
  temperature: z
    .number()
    .min(0)
    .max(2)
    .nullish()
    .meta({ description: `Sampling temperature; 0 is greedy decoding. ${byModel}.` }),
  top_p: z
    .number()
    .gt(0)
    .max(1)
    .nullish()
    .meta({ description: `Nucleus sampling: probability mass of the tokens to sample from. ${byModel}.` }),
  // -1 and 0 are accepted, because clients send them to disable top_k.
  top_k: z
    .int()
    .min(-1)
    .nullish()
    .meta({ description: `Number of most likely tokens to sample from; 0 and -1 mean all. ${byModel}.` }),
  min_p: z
    .number()
    .min(0)
    .max(1)
    .nullish()
    .meta({ description: `Minimum token probability, as a fraction of the most likely token's. ${byModel}.` }),
  presence_penalty: z
    .number()
    .min(-2)
    .max(2)
    .nullish()
    .meta({ description: `Subtracted from the logits of tokens that occur in the output. ${byModel}.` }),
  frequency_penalty: z
    .number()
    .min(-2)
    .max(2)
    .nullish()
    .meta({ description: `Subtracted from the logit of a token for each occurrence in the output. ${byModel}.` }),
  repetition_penalty: z
    .number()
    .gt(0)
    .max(MAX_REPETITION_PENALTY)
    .nullish()
    .meta({ description: `Factor that makes repeated tokens less likely; 1 is off. ${byModel}.` }),
  repeat_penalty: z
    .number()
    .gt(0)
    .max(MAX_REPETITION_PENALTY)
    .nullish()
    .meta({ description: "Alias of repetition_penalty, as llama-server names it." }),
  logit_bias: z
    .record(z.string().regex(/^(?:0|[1-9]\d{0,8})$/, { error: expected("a token id") }), z.number().min(-100).max(100))
    .refine((bias) => Object.keys(bias).length <= MAX_BIASED_TOKENS, {
      error: expected(`at most ${MAX_BIASED_TOKENS} tokens`),
    })
    .nullish()
    .meta({ description: "Values added to logits, by token id; each from -100 to 100." }),
  dry_multiplier: z
    .number()
    .min(0)
    .nullish()
    .meta({ description: "DRY sampling: strength of the repetition penalty; 0 is off.", default: 0 }),
  dry_base: z
    .number()
    .min(1)
    .nullish()
    .meta({ description: "DRY sampling: growth of the penalty per repeated token.", default: 1.75 }),
  dry_allowed_length: z
    .int()
    .min(0)
    .nullish()
    .meta({ description: "DRY sampling: length in tokens of repetitions without penalty.", default: 2 }),
  dry_sequence_breakers: z
    .array(z.string().min(1).max(MAX_STOP_LENGTH))
    .max(MAX_BREAKERS)
    .nullish()
    .meta({ description: "DRY sampling: strings that end a repetition.", default: defaultBreakers }),
  seed: z.int().nullish().meta({ description: "Sampling seed; completion i of n uses seed + i. Random by default." }),
  grammar: grammarField,
  ...guidedFields,
  priority: z.int().min(-MAX_PRIORITY).max(MAX_PRIORITY).nullish().meta({
    description: "Queue priority; requests with a lower value run first. An extension of the contract.",
    default: 0,
  }),
  adapter: adapterField,
  user: ignored(z.string(), "requests are scheduled fairly by API key or client address"),
} as const;

type CommonFields = z.output<z.ZodObject<typeof commonFields>>;

/** Fields of a request that determine its sampling; all are optional. */
export type SamplingFields = Partial<Omit<CommonFields, "adapter">>;

/** Returns the sampling parameters in a request. The model's defaults for omitted fields are applied later. */
export function samplingOf(fields: SamplingFields, topLogprobs: number | null): RequestedSampling {
  return {
    temperature: fields.temperature ?? null,
    topK: typeof fields.top_k === "number" ? Math.max(fields.top_k, 0) : null,
    topP: fields.top_p ?? null,
    minP: fields.min_p ?? null,
    presencePenalty: fields.presence_penalty ?? null,
    frequencyPenalty: fields.frequency_penalty ?? null,
    repetitionPenalty: fields.repetition_penalty ?? fields.repeat_penalty ?? null,
    dry: dryOf(fields),
    logitBias: Object.entries(fields.logit_bias ?? {}).map(([token, bias]) => [Number(token), bias] as const),
    seed: fields.seed ?? null,
    topLogprobs,
  };
}

/** Yields the conflicts between sampling fields and their aliases. */
export function* samplingConflicts({ repeat_penalty, repetition_penalty }: SamplingFields): Iterable<Conflict> {
  yield* differing("repeat_penalty", repeat_penalty, "repetition_penalty", repetition_penalty);
}

function dryOf(fields: SamplingFields): Dry | null {
  const multiplier = fields.dry_multiplier ?? 0;
  if (multiplier === 0) return null;
  return {
    multiplier,
    base: fields.dry_base ?? 1.75,
    allowedLength: fields.dry_allowed_length ?? 2,
    sequenceBreakers: fields.dry_sequence_breakers ?? defaultBreakers,
  };
}

export function stopStrings(stop: CommonFields["stop"]): readonly string[] {
  return typeof stop === "string" ? [stop] : (stop ?? []);
}
