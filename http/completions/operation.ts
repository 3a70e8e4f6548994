// OpenAPI description of POST /v1/completions.
import { jsonAnswer, modelErrors, type Operation } from "../operation.ts";
import { completionRequestSchema } from "./request.ts";
import { textCompletionSchema } from "./schemas.ts";

export const completionOperation: Operation = {
  id: "createCompletion",
  tag: "Inference",
  summary: "Create a text completion",
  description: "Continues one prompt without a chat template. Does not stream.",
  body: completionRequestSchema,
  answers: jsonAnswer(textCompletionSchema, "The completion"),
  errors: modelErrors,
};
