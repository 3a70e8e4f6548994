// Request fields that /api/chat and /api/generate share, and their translation. Ollama's options for loading a model are
// ignored, because the settings of this server determine how a model is loaded.
import { z } from "zod";
import type { OutputGrammar } from "../../engines/generation.ts";
import { expected } from "../issues.ts";
import { isBounded, ofWholeSchemas, tooLarge } from "../shared/fields/bounded.ts";
import type { Conflict } from "../shared/fields/conflicts.ts";
import { commonFields, ignored, samplingOf, stopStrings } from "../shared/fields/fields.ts";
import { effortSchema, templateArguments } from "../shared/fields/thinking.ts";
import type { AskedRequest } from "../shared/translation.ts";

const MAX_TOP_LOGPROBS = 20;

const AT_LOAD = "a setting of the server, which it uses when it loads a model";
const NO_SAMPLER = "there is no such sampling stage";

const loadOption = ignored(z.unknown(), AT_LOAD);
const samplingOption = ignored(z.unknown(), NO_SAMPLER);

export const options = z
  .strictObject({
    temperature: commonFields.temperature,
    top_k: commonFields.top_k,
    top_p: commonFields.top_p,
    min_p: commonFields.min_p,
    presence_penalty: commonFields.presence_penalty,
    frequency_penalty: commonFields.frequency_penalty,
    repeat_penalty: commonFields.repetition_penalty,
    stop: commonFields.stop,
    seed: z.int().nullish().meta({ description: "Sampling seed; random by default and below 0." }),
    num_predict: z
      .int()
      .min(-2)
      .nullish()
      .meta({ description: "Maximum number of output tokens; 0 and below mean the rest of the context.", default: -1 }),
    num_ctx: ignored(z.unknown(), "the context length is the setting max_model_len"),
    num_keep: ignored(z.unknown(), "a prompt is never shifted"),
    num_batch: loadOption,
    num_gpu: loadOption,
    num_thread: loadOption,
    main_gpu: loadOption,
    low_vram: loadOption,
    numa: loadOption,
    use_mmap: loadOption,
    use_mlock: loadOption,
    vocab_only: loadOption,
    f16_kv: loadOption,
    logits_all: loadOption,
    embedding_only: loadOption,
    draft_num_predict: loadOption,
    repeat_last_n: samplingOption,
    typical_p: samplingOption,
    tfs_z: samplingOption,
    mirostat: samplingOption,
    mirostat_tau: samplingOption,
    mirostat_eta: samplingOption,
    penalize_newline: samplingOption,
  })
  .nullish()
  .meta({ description: "Sampling parameters and limits." });

export const keepAlive = ignored(
  z.union([z.number(), z.string()], { error: expected("seconds or a duration such as 5m") }),
  "the setting idle_unload_secs decides when a model is unloaded; only 0 without a prompt or messages unloads it",
);

const formatError = { error: expected('"json" or a JSON schema') };

export const generationFields = {
  model: commonFields.model,
  stream: z
    .boolean()
    .nullish()
    .meta({ description: "Stream the response as lines of JSON; false: one JSON object.", default: true }),
  format: z
    .union(
      [
        z.enum(["", "json"], formatError),
        z
          .record(z.string(), z.unknown())
          .refine((schema) => isBounded(schema, ofWholeSchemas), { error: tooLarge("a schema", ofWholeSchemas) }),
      ],
      formatError,
    )
    .nullish()
    .meta({ description: "Format of the whole output: `json`, or a JSON schema; free text by default." }),
  think: z
    .union([z.boolean(), effortSchema], { error: expected('true, false, "low", "medium" or "high"') })
    .nullish()
    .meta({ description: "Whether, or how hard, the model reasons; by default its template decides." }),
  options,
  keep_alive: keepAlive,
  logprobs: z
    .boolean()
    .nullish()
    .meta({ description: "Return the log probabilities of the output tokens.", default: false }),
  top_logprobs: z
    .int()
    .min(0)
    .max(MAX_TOP_LOGPROBS)
    .nullish()
    .meta({ description: "Number of alternatives per token; needs logprobs.", default: 0 }),
  truncate: z
    .boolean()
    .nullish()
    .meta({ description: "Truncate a prompt that exceeds the context instead of refusing it.", default: false }),
  shift: ignored(z.boolean(), "the output ends where the context is full"),
} as const;

type GenerationFields = z.output<z.ZodObject<typeof generationFields>>;

/** Properties of a request that the route handler needs. */
export interface GenerationFacts {
  readonly model: string | null | undefined;
  readonly isStreamed: boolean;
  /** Change of the model's state that a request without a prompt asks for; null: the request is a generation. */
  readonly change: "load" | "unload" | null;
}

/** Returns the properties of a request. `isEmpty`: whether the request has no prompt. */
export function generationFacts(body: GenerationFields, isEmpty: boolean): GenerationFacts {
  const change = isZero(body.keep_alive) ? "unload" : "load";
  return { model: body.model, isStreamed: body.stream ?? true, change: isEmpty ? change : null };
}

/** Converts the shared fields to a generation request. `promptField`: name of the field that contains the prompt. */
export function generationRequest(
  body: GenerationFields,
  promptField: "messages" | "prompt",
): Omit<AskedRequest, "prompt" | "tools"> {
  const { repeat_penalty, seed, num_predict: limit, ...sampling } = body.options ?? {};
  const fields = { ...sampling, repetition_penalty: repeat_penalty, seed: (seed ?? -1) < 0 ? null : seed };
  return {
    sampling: samplingOf(fields, body.logprobs ? (body.top_logprobs ?? 0) : null),
    choices: 1,
    candidates: 1,
    priority: 0,
    grammar: formatGrammar(body.format),
    promptLogprobs: null,
    reasoningBudget: null,
    stop: stopStrings(sampling.stop),
    maxTokens: (limit ?? -1) > 0 ? (limit ?? null) : null,
    minTokens: 0,
    ignoreEos: false,
    stopTokens: [],
    truncatePrompt: body.truncate ?? false,
    fields: { prompt: promptField, maxTokens: "options.num_predict" },
  };
}

export function thinkingArguments({ think }: GenerationFields) {
  return templateArguments(typeof think === "string" ? { effort: think } : { isOn: think });
}

export function* generationConflicts({ top_logprobs, logprobs }: GenerationFields): Iterable<Conflict> {
  if ((top_logprobs ?? 0) > 0 && logprobs !== true) yield ["top_logprobs", "needs logprobs: true"];
}

function formatGrammar(format: GenerationFields["format"]): OutputGrammar | null {
  if (format === null || format === undefined || format === "") return null;
  return format === "json" ? { kind: "json" } : { kind: "json_schema", schema: format, field: "format" };
}

/** Returns whether a duration (a number, or a text with a unit) is zero. */
function isZero(keepAlive: GenerationFields["keep_alive"]): boolean {
  return keepAlive === 0 || (typeof keepAlive === "string" && /^0+(?:\.0+)?[a-zµ]*$/.test(keepAlive));
}
