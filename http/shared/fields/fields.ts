// Owns the request fields that more than one text protocol has, as schemas, what they mean in our own terms, and the ways to
// know a field that is refused or changes nothing. The schemas are the only description of the fields: the API document is
// made from them.
import { z } from "zod";
import type { Dry, Sampling } from "../../../engines/generation.ts";
import { expected } from "../../issues.ts";
import { adapterField } from "./adapter-field.ts";
import { grammarField } from "./grammar-fields.ts";

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
export function notBuiltYet(what: string, isNeutral?: (value: unknown) => boolean) {
  return refused(notYet(what), isNeutral);
}

/** The same of a field that this server will not have, or not in this place: the message says why, and what to do. */
export function refused(message: string, isNeutral: (value: unknown) => boolean = () => false) {
  return z
    .unknown()
    .superRefine((value, context) => {
      if (value !== null && !isNeutral(value)) context.addIssue(refusalIssue(message));
    })
    .optional()
    .meta({ support: "refused", description: `Refused: ${message}` });
}

/**
 * Of a union of objects told apart by `type`, the ones that are known and not taken; what `message` says of a type is the
 * refusal.
 */
export function refusedVariants<const Types extends readonly [string, ...string[]]>(
  types: Types,
  message: (type: Types[number]) => string,
) {
  return z
    .looseObject({ type: z.enum(types) })
    .meta({ support: "refused", description: "Refused: none of these types is taken here" })
    .transform(({ type }, context): never => {
      context.addIssue(refusalIssue(message(type)));
      return z.NEVER;
    });
}

/** A field that is taken for the sake of clients that send it, checked, and changes nothing: the log says so once. */
export function ignored<Schema extends z.ZodType>(schema: Schema, why: string) {
  return schema.nullish().meta({ support: "ignored", description: `Ignored: ${why}` });
}

/** A schema issue that becomes the error code `unsupported`; `field` names a field inside the value at fault. */
export function refusalIssue(message: string, field?: string) {
  const params = { code: "unsupported", ...(field === undefined ? {} : { field }) };
  return { code: "custom" as const, message, params };
}

/** The words for what a later version will have. */
export function notYet(what: string): string {
  return `${what} is not supported by this server yet`;
}

export const isEmptyArray = (value: unknown): boolean => Array.isArray(value) && value.length === 0;

// Half of a surrogate pair would match inside a character and cut it in two.
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
  .meta({ description: "Answer piece by piece, as server-sent events; false" });

export const commonFields = {
  model: z.string().max(MAX_MODEL_LENGTH).nullish().meta({
    description:
      'Id of a model, or of one with an adapter as GET /v1/models lists it; left out or "default", the default model',
  }),
  n: z.int().min(1).max(MAX_CHOICES).nullish().meta({ description: "Answers to give, each on its own; 1" }),
  stop: z
    .union([stopString, stopStringList], {
      error: expected(`a string or an array of at most ${MAX_STOP_STRINGS} strings`),
    })
    .nullish()
    .meta({ description: "Texts that end the answer, and are left out of it" }),
  max_tokens: z
    .int()
    .min(1)
    .nullish()
    .meta({ description: "Most tokens of an answer; left out, it may fill the context" }),
  ignore_eos: z.boolean().nullish().meta({ description: "Go on where the model would end; false" }),
  truncate_sequence: z
    .boolean()
    .nullish()
    .meta({ description: "Cut a prompt that is too long, instead of refusing it; false" }),
  temperature: z.number().min(0).max(2).nullish().meta({ description: "0: the likeliest token each time; 1" }),
  top_p: z.number().gt(0).max(1).nullish().meta({ description: "Of the likeliest tokens this much probability; 1" }),
  // Some clients send -1 for "off", others 0.
  top_k: z.int().min(-1).nullish().meta({ description: "Of so many likeliest tokens; -1 and 0: of all" }),
  min_p: z.number().min(0).max(1).nullish().meta({ description: "No token less likely than this times the likeliest" }),
  presence_penalty: z.number().min(-2).max(2).nullish(),
  frequency_penalty: z.number().min(-2).max(2).nullish(),
  repetition_penalty: z.number().gt(0).max(MAX_REPETITION_PENALTY).nullish().meta({ description: "1 is none" }),
  logit_bias: z
    .record(z.string().regex(/^(?:0|[1-9]\d{0,8})$/, { error: expected("a token id") }), z.number().min(-100).max(100))
    .refine((bias) => Object.keys(bias).length <= MAX_BIASED_TOKENS, {
      error: expected(`at most ${MAX_BIASED_TOKENS} tokens`),
    })
    .nullish()
    .meta({ description: "Added to the logits of tokens, by token id" }),
  dry_multiplier: z
    .number()
    .min(0)
    .nullish()
    .meta({ description: "How much going on with what was said before is penalised; 0" }),
  dry_base: z.number().min(1).nullish().meta({ description: "1.75" }),
  dry_allowed_length: z.int().min(0).nullish().meta({ description: "Tokens repeated freely; 2" }),
  dry_sequence_breakers: z
    .array(z.string().min(1).max(MAX_STOP_LENGTH))
    .max(MAX_BREAKERS)
    .nullish()
    .meta({ description: "Texts that no repetition goes across" }),
  seed: z
    .int()
    .nullish()
    .meta({ description: "The same seed and request give the same answer; the i-th of n has seed + i" }),
  grammar: grammarField,
  priority: z.int().min(-MAX_PRIORITY).max(MAX_PRIORITY).nullish().meta({
    description: "Of requests that wait, the ones of lower priority are served first; 0. Not of the contract",
  }),
  adapter: adapterField,
  user: ignored(z.string(), "clients take turns by their API key or address"),
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
