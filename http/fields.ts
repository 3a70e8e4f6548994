// Owns the request fields that more than one text protocol has, as schemas, and what they mean in our own terms. The
// schemas are the only description of the fields: the API document will be made from them.
import { z } from "zod";
import type { Dry, Sampling } from "../engines/chat.ts";
import { grammarField } from "./grammar-fields.ts";
import { expected } from "./issues.ts";

/** Most choices of one request. */
export const MAX_CHOICES = 64;
const MAX_PRIORITY = 1000;
const MAX_STOP_STRINGS = 16;
const MAX_STOP_LENGTH = 1024;
const MAX_MODEL_LENGTH = 4096;
/** Each is looked for in every token of the vocabulary. */
const MAX_BREAKERS = 64;
/** Each of a request's choices carries its own copy. */
const MAX_BIASED_TOKENS = 4096;
/** Beyond it there is nothing but overflow: a logit of minus infinity bans its token. */
const MAX_REPETITION_PENALTY = 100;

/**
 * A field of the contract that is not built yet: null and the values for which `isNeutral` says that they ask for
 * nothing are taken, any other is refused by name.
 */
export function notBuiltYet(what: string, isNeutral: (value: unknown) => boolean = () => false) {
  return z
    .unknown()
    .superRefine((value, context) => {
      if (value !== null && !isNeutral(value)) context.addIssue(unsupportedIssue(what));
    })
    .optional();
}

/** A schema issue that becomes the error code `unsupported`; `field` names a field inside the value at fault. */
export function unsupportedIssue(what: string, field?: string) {
  const params = { code: "unsupported", ...(field === undefined ? {} : { field }) };
  return { code: "custom" as const, message: `${what} is not supported by this server yet`, params };
}

/** A schema issue about one field of the object it is raised on. */
export function fieldIssue(field: string, message: string) {
  return { code: "custom" as const, message, params: { field } };
}

export const isEmptyArray = (value: unknown): boolean => Array.isArray(value) && value.length === 0;

// Half of a surrogate pair would match inside a character and cut it in two.
const halfCharacter = /\p{Surrogate}/u;
const stopString = z
  .string()
  .min(1)
  .max(MAX_STOP_LENGTH)
  .refine((text) => !halfCharacter.test(text), { error: expected("a string of whole characters") });

export const commonFields = {
  model: z.string().max(MAX_MODEL_LENGTH).nullish(),
  n: z.int().min(1).max(MAX_CHOICES).nullish(),
  stop: z
    .union([stopString, z.array(stopString).max(MAX_STOP_STRINGS)], {
      error: expected(`a string or an array of at most ${MAX_STOP_STRINGS} strings`),
    })
    .nullish(),
  max_tokens: z.int().min(1).nullish(),
  ignore_eos: z.boolean().nullish(),
  truncate_sequence: z.boolean().nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  // Some clients send -1 for "off", others 0.
  top_k: z.int().min(-1).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  presence_penalty: z.number().min(-2).max(2).nullish(),
  frequency_penalty: z.number().min(-2).max(2).nullish(),
  repetition_penalty: z.number().gt(0).max(MAX_REPETITION_PENALTY).nullish(),
  logit_bias: z
    .record(z.string().regex(/^(?:0|[1-9]\d{0,8})$/, { error: expected("a token id") }), z.number().min(-100).max(100))
    .refine((bias) => Object.keys(bias).length <= MAX_BIASED_TOKENS, {
      error: expected(`at most ${MAX_BIASED_TOKENS} tokens`),
    })
    .nullish(),
  dry_multiplier: z.number().min(0).nullish(),
  dry_base: z.number().min(1).nullish(),
  dry_allowed_length: z.int().min(0).nullish(),
  dry_sequence_breakers: z.array(z.string().min(1).max(MAX_STOP_LENGTH)).max(MAX_BREAKERS).nullish(),
  seed: z.int().nullish(),
  grammar: grammarField,
  // Ours: of requests that wait, the ones of lower priority are served first. 0 where it is left out.
  priority: z.int().min(-MAX_PRIORITY).max(MAX_PRIORITY).nullish(),
  adapter: notBuiltYet("choosing an adapter"),
  tools: notBuiltYet("calling tools", isEmptyArray),
  tool_choice: notBuiltYet("calling tools", (value) => value === "none"),
  // Accepted for the sake of clients that send it; it changes nothing.
  user: z.string().nullish(),
} as const;

type CommonFields = z.output<z.ZodObject<typeof commonFields>>;

/** The sampling a request asks for; omitted fields take the contract's defaults. */
export function samplingOf(fields: CommonFields, topLogprobs: number | null): Sampling {
  return {
    temperature: fields.temperature ?? 1,
    topK: Math.max(fields.top_k ?? 0, 0),
    topP: fields.top_p ?? 1,
    minP: fields.min_p ?? 0,
    presencePenalty: fields.presence_penalty ?? 0,
    frequencyPenalty: fields.frequency_penalty ?? 0,
    repetitionPenalty: fields.repetition_penalty ?? 1,
    dry: dryOf(fields),
    logitBias: Object.entries(fields.logit_bias ?? {}).map(([token, bias]) => [Number(token), bias] as const),
    seed: fields.seed ?? null,
    topLogprobs,
  };
}

function dryOf(fields: CommonFields): Dry | null {
  const multiplier = fields.dry_multiplier ?? 0;
  if (multiplier === 0) return null;
  return {
    multiplier,
    base: fields.dry_base ?? 1.75,
    allowedLength: fields.dry_allowed_length ?? 2,
    sequenceBreakers: fields.dry_sequence_breakers ?? ["\n", ":", '"', "*"],
  };
}

export function stopStrings(stop: CommonFields["stop"]): readonly string[] {
  return typeof stop === "string" ? [stop] : (stop ?? []);
}
