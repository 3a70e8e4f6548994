// OpenAPI description of POST /v1/completions.
import { z } from "zod";
import { commonErrors } from "../errors.ts";
import { modelErrors, type Operation, streamContent } from "../operation.ts";
import { completionRequestSchema } from "./request.ts";
import { completionChunkSchema, textCompletionSchema } from "./schemas.ts";

export const completionOperation: Operation = {
  id: "createCompletion",
  tag: "Inference",
  summary: "Create a text completion",
  description:
    "Continues prompts without a chat template. The choices of prompt p have the indices p * n to p * n + n - 1. Streams only with the setting allow_completions_stream.",
  body: completionRequestSchema,
  answers: {
    200: [
      {
        contentType: "application/json",
        schema: textCompletionSchema,
        description: "The completion, unless stream is true",
      },
      streamContent(
        z.union([completionChunkSchema, commonErrors.schema]),
        "With stream: true, chunks as unnamed events, then `data: [DONE]`. A failure after the first chunk is an event with the error envelope, then `[DONE]`.",
      ),
    ],
  },
  errors: modelErrors,
};
