// OpenAPI description of the routes that load and unload models, and the schemas of their requests and responses.
import { z } from "zod";
import { commonErrors, type ErrorFormat } from "../errors.ts";
import { jsonAnswer, type Operation } from "../operation.ts";

const MAX_MODEL_LENGTH = 4096;

export const managedRequestSchema = z.strictObject({
  model_id: z.string().max(MAX_MODEL_LENGTH).meta({ description: 'Id of a model, or "default".' }),
});

export const managedModelSchema = z
  .strictObject({
    model_id: z
      .string()
      .meta({ description: "Configured id of the model; the requested name if there is no such model." }),
    status: z
      .enum(["loaded", "unloaded", "reloading", "not_found", "internal_error"])
      .meta({ description: "State of the model, or the kind of failure." }),
    error: z.string().optional().meta({ description: "Error message of the failed load or change." }),
  })
  .meta({ id: "ManagedModel" });

export type WireManagedModel = z.output<typeof managedModelSchema>;

/**
 * Error format of the management routes. Errors of loading or unloading a model have the same shape as successful responses.
 * All other errors have the common error body.
 */
export const managementErrors: ErrorFormat = {
  ...commonErrors,
  schema: z.union([managedModelSchema, commonErrors.schema]).meta({ id: "ManagedModelError" }),
};

const common = { tag: "Models", body: managedRequestSchema } as const;

export const showStatusOperation: Operation = {
  id: "showModelStatus",
  ...common,
  summary: "Show whether a model is loaded",
  description: "Includes the error if the model is unloaded because of one.",
  answers: jsonAnswer(managedModelSchema, "The model"),
  errors: ["model_not_found"],
};

/** Errors that a reload or an unload may return, in addition to the common errors. */
const changeErrors = [
  "model_not_found",
  "model_state_conflict",
  "unsupported",
  "draining",
  "timeout",
  "cancelled",
  "mailbox_full",
  "model_loading",
  "model_source_unreachable",
  "model_failed",
  "model_file_invalid",
  "config_invalid",
  "peer_gone",
] as const;

export const reloadModelOperation: Operation = {
  id: "reloadModel",
  ...common,
  summary: "Load a model, or reload a loaded one",
  description:
    "Responds when the model is loaded, or immediately with the status reloading if another request is loading it. Running requests finish first; new ones wait. Continues if the client disconnects.",
  answers: jsonAnswer(managedModelSchema, "The model"),
  errors: changeErrors,
};

export const unloadModelOperation: Operation = {
  id: "unloadModel",
  ...common,
  summary: "Unload a model until a request names it",
  description:
    "Responds when the running requests have finished and the model is unloaded. An unloaded model stays unloaded.",
  answers: jsonAnswer(managedModelSchema, "The model"),
  errors: changeErrors,
};
