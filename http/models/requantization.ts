// POST /re_isq: changes the quantization of a model while it serves requests. Contains the request schema, the OpenAPI
// description, and the progress object in model entries.
import { z } from "zod";
import type { Requantization } from "../../actors/api/inference.ts";
import type { RouteHandler } from "../context.ts";
import { readJson } from "../json.ts";
import type { Operation } from "../operation.ts";

const MAX_MODEL_LENGTH = 4096;
const MAX_LEVEL_LENGTH = 32;

const requantizeSchema = z.strictObject({
  ggml_type: z
    .string()
    .max(MAX_LEVEL_LENGTH)
    .meta({ description: "Quantization level, as in the setting `isq`: Q4K, Q8_0, or a number of bits." }),
  model: z
    .string()
    .max(MAX_MODEL_LENGTH)
    .nullish()
    .meta({ description: 'Id of the model; "default" is the default model.', default: "default" }),
});

export const requantizeOperation: Operation = {
  id: "requantizeModel",
  tag: "Operations",
  summary: "Change the quantization of a model",
  description:
    "Responds at once. In the background, the source of the model is converted, and the result is kept in the cache. Then the " +
    "converted model takes the place of the loaded one: running requests finish on the old weights, new ones wait. " +
    "`requantization` in `GET /v1/models` shows the progress. If it fails, the model is unchanged.",
  body: requantizeSchema,
  answers: { 200: [{ contentType: "text/plain; charset=utf-8", description: '`Re ISQ: "Q4K"`' }] },
  errors: ["model_not_found", "model_state_conflict", "unsupported", "draining"],
};

export const requantize: RouteHandler = (exchange, { models, log }) => {
  const { ggml_type: level, model } = readJson(exchange.request, requantizeSchema, log);
  exchange.model = models.requantize(model ?? "default", level);
  exchange.text(200, `Re ISQ: ${JSON.stringify(level)}`);
};

/** Builds the progress object of a requantization for the entry of its model. */
export function wireRequantization({ level, status, progress, error }: Requantization) {
  return { ggml_type: level, status, progress, ...(error === null ? {} : { error }) };
}
