// Owns what the API document says of POST /v1/completions.
import { jsonAnswer, modelErrors, type Operation } from "../operation.ts";
import { completionRequestSchema } from "./request.ts";
import { textCompletionSchema } from "./schemas.ts";

export const completionOperation: Operation = {
  id: "createCompletion",
  tag: "Inference",
  summary: "Go on with a text",
  description: "Takes one prompt as it is, without a chat template. Does not stream.",
  body: completionRequestSchema,
  answers: jsonAnswer(textCompletionSchema, "The text"),
  errors: modelErrors,
};
