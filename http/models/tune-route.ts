// POST /v1/models/tune: benchmarks a model and recommends settings. The tuner runs in a child process.
import type { TuneRequest, Tuner } from "../../actors/api/tuning.ts";
import { parseLevel } from "../../engines/quantization/plan/levels.ts";
import { type ErrorCode, ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { readJson } from "../json.ts";
import { tuneRequestSchema, wireTuneResult } from "./tune-operation.ts";

export const tuneModel: RouteHandler = async (exchange, { tuner, log }) => {
  const body = readJson(exchange.request, tuneRequestSchema, log);
  const request: TuneRequest = {
    model: body.model_id,
    profile: body.profile,
    level: levelOf(body.requested_isq ?? null),
    cpu: body.cpu ?? null,
    dtype: body.dtype ?? null,
    revision: body.hf_revision ?? null,
    tokenSource: body.token_source ?? null,
  };
  const result = wireTuneResult(await tuner.tune(request, exchange.request.signal).catch(refuse));
  const unused = ["max_image_length", "max_num_images"].filter((field) => body[field as "max_num_images"] != null);
  const notes = unused.map((field) => `${field} has no effect: the weights alone decide`);
  exchange.json(200, { ...result, notes: [...result.notes, ...notes] });
};

/** Error codes that are returned unchanged, because they do not mean that the tuning itself failed. */
const others: ReadonlySet<ErrorCode> = new Set(["model_not_found", "conflict", "cancelled", "unsupported"]);

/** Throws the error of a tuning. Failures of the tuning itself get the code `tuning_failed`. */
function refuse(cause: unknown): never {
  if (!(cause instanceof ServerError) || others.has(cause.code)) throw cause;
  throw new ServerError("tuning_failed", cause.message, { cause });
}

/** Placeholder for an app without a tuner: rejects every request. */
export const untuned: Tuner = {
  tune: async () => {
    throw new ServerError("unsupported", "this server cannot tune models; use `troupe tune`");
  },
};

/** Returns the quantization level in the request; null if there is none. Throws `invalid_value` for "auto" and unknown levels. */
function levelOf(given: string | null): string | null {
  if (given === null) return null;
  if (given.toLowerCase() === "auto") {
    const message =
      "requested_isq: expected a quantization level such as Q4K, got auto; leave it out to try all levels";
    throw new ServerError("invalid_value", message, { param: "requested_isq" });
  }
  try {
    return parseLevel(given.slice(0, 60), "requested_isq").name;
  } catch (cause) {
    if (!(cause instanceof ServerError)) throw cause;
    throw new ServerError("invalid_value", cause.message, { param: "requested_isq", cause });
  }
}
