// Requests of the LoRA routes: the schemas of the bodies and of the query, and their translation.
import { z } from "zod";
import { checkedAlias, checkLoadPolicy } from "../../actors/api/adapter-rules.ts";
import type { LoadAdapterRequest, UnloadAdapterRequest } from "../../actors/api/lora-adapters.ts";
import { maxAliasBytes } from "../../actors/api/lora-alias.ts";
import { type ErrorCode, ServerError } from "../../runtime/errors.ts";
import { validate } from "../json.ts";
import { generationSchema } from "../shared/fields/adapter-field.ts";
import { addConflicts, differing } from "../shared/fields/conflicts.ts";
import { ignored } from "../shared/fields/fields.ts";

const MAX_MODEL_LENGTH = 4096;
/** Maximum path length of operating systems. */
const MAX_PATH_BYTES = 4096;

const model = z
  .string()
  .max(MAX_MODEL_LENGTH)
  .nullish()
  .meta({ description: 'Id of the model; "default" is the default model.', default: "default" });

const loraName = z.string().meta({
  description: `Alias of the adapter in requests, at most ${maxAliasBytes} bytes; surrounding whitespace is removed.`,
});

export const loadAdapterSchema = z
  .strictObject({
    lora_name: loraName,
    lora_path: z.string().meta({
      description:
        "Path on the server of a folder with adapter_config.json and adapter_model.safetensors, or of a GGUF file; relative to SERVICE_LORA_ADAPTER_ROOT.",
    }),
    load_inplace: z.boolean().nullish().meta({
      description: "Replace the adapter of an existing alias; running requests keep the old one.",
      default: false,
    }),
    replace: z.boolean().nullish().meta({ description: "Alias of load_inplace." }),
    expected_generation: generationSchema
      .nullish()
      .meta({ description: "Load only if the alias has this generation; needs load_inplace." }),
    model,
  })
  .superRefine((body, context) =>
    addConflicts(context, differing("replace", body.replace, "load_inplace", body.load_inplace)),
  );

export const unloadAdapterSchema = z.strictObject({
  lora_name: loraName,
  expected_generation: generationSchema
    .nullish()
    .meta({ description: "Unload only if the alias has this generation." }),
  lora_int_id: ignored(z.int(), "adapters are identified by alias"),
  model,
});

export const listAdaptersQuery = z.strictObject({
  model: z
    .string()
    .max(MAX_MODEL_LENGTH)
    .optional()
    .meta({ description: 'Id of the model; "default" is the default model.', default: "default" }),
});

/** Translates a load request. Throws on an invalid alias or path, or if `replace` and `expected_generation` conflict. */
export function toLoadRequest(body: z.output<typeof loadAdapterSchema>, modelId: string): LoadAdapterRequest {
  const replace = body.load_inplace ?? body.replace ?? false;
  const expectedGeneration = body.expected_generation ?? null;
  checkLoadPolicy({ replace, expectedGeneration });
  return {
    model: modelId,
    alias: checkedAlias(body.lora_name),
    path: pathOf(body.lora_path),
    replace,
    expectedGeneration,
  };
}

/** Translates an unload request. Throws on an invalid alias. */
export function toUnloadRequest(
  { lora_name, expected_generation }: z.output<typeof unloadAdapterSchema>,
  modelId: string,
): UnloadAdapterRequest {
  return { model: modelId, alias: checkedAlias(lora_name), expectedGeneration: expected_generation ?? null };
}

/** Parses the query of the list route. Throws `invalid_value` on an unknown or repeated parameter. */
export function readListQuery(query: string): z.output<typeof listAdaptersQuery> {
  const given = new URLSearchParams(query);
  const parsed = validate(listAdaptersQuery, Object.fromEntries(given));
  if (given.size > 1) throw wrong("invalid_value", "model", "expected it once, got it more often");
  return parsed;
}

function pathOf(path: string): string {
  const bytes = Buffer.byteLength(path);
  const isPath = path.trim() !== "" && bytes <= MAX_PATH_BYTES && !path.includes("\0");
  if (isPath) return path;
  const got = path.trim() === "" ? "none" : path.includes("\0") ? "one with a zero byte" : `${bytes} bytes`;
  throw wrong("invalid_adapter_path", "lora_path", `expected a path of at most ${MAX_PATH_BYTES} bytes, got ${got}`);
}

function wrong(code: ErrorCode, param: string, message: string): ServerError {
  return new ServerError(code, `${param}: ${message}`, { param });
}
