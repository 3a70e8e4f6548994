// Owns what the API document says of loading and unloading models, with the schemas of what is asked and answered.
import { z } from "zod";
import { commonErrors, type ErrorFormat } from "../errors.ts";
import { jsonAnswer, type Operation } from "../operation.ts";

const MAX_MODEL_LENGTH = 4096;

export const managedRequestSchema = z.strictObject({
  model_id: z.string().max(MAX_MODEL_LENGTH).meta({ description: 'Id of a model, or "default"' }),
});

export const managedModelSchema = z
  .strictObject({
    model_id: z.string().meta({ description: "As it is configured; as it was asked for where there is no such model" }),
    status: z
      .enum(["loaded", "unloaded", "reloading", "not_found", "internal_error"])
      .meta({ description: "What it is now, or why it cannot be told" }),
    error: z.string().optional().meta({ description: "Why it is not as it was asked to be" }),
  })
  .meta({ id: "ManagedModel" });

export type WireManagedModel = z.output<typeof managedModelSchema>;

/** What became of a model is told in the shape of these routes, whatever it is; all else in the common envelope. */
export const managementErrors: ErrorFormat = {
  ...commonErrors,
  schema: z.union([managedModelSchema, commonErrors.schema]).meta({ id: "ManagedModelError" }),
};

const common = { tag: "Models", body: managedRequestSchema } as const;

export const showStatusOperation: Operation = {
  id: "showModelStatus",
  ...common,
  summary: "Say whether a model is loaded",
  description: "With the error that it failed with, where it is unloaded because of one.",
  answers: jsonAnswer(managedModelSchema, "The model"),
  errors: ["model_not_found"],
};

/** Why a model may not be as it was asked to be. */
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
  summary: "Load a model, anew where it is loaded",
  description:
    "Answers when the model is loaded, or at once with the status reloading where another request is at it. Requests under way are answered first, those that come wait. Goes on where the client hangs up.",
  answers: jsonAnswer(managedModelSchema, "The model"),
  errors: changeErrors,
};

export const unloadModelOperation: Operation = {
  id: "unloadModel",
  ...common,
  summary: "Free a model's memory, until a request names it",
  description:
    "Answers when the requests under way have been answered and the model is gone. One that is unloaded already stays so.",
  answers: jsonAnswer(managedModelSchema, "The model"),
  errors: changeErrors,
};
