// Owns what the API document says of POST /v1/chat/completions.
import { z } from "zod";
import { commonErrors } from "../errors.ts";
import { modelErrors, type Operation, streamContent } from "../operation.ts";
import { chatRequestSchema } from "./request.ts";
import { chatChunkSchema, chatCompletionSchema } from "./schemas.ts";

export const chatOperation: Operation = {
  id: "createChatCompletion",
  tag: "Inference",
  summary: "Answer a conversation",
  description: "Goes on with a conversation, as the model's chat template writes it.",
  body: chatRequestSchema,
  answers: {
    200: [
      {
        contentType: "application/json",
        schema: chatCompletionSchema,
        description: "The answer, unless stream is true",
      },
      streamContent(
        z.union([chatChunkSchema, commonErrors.schema]),
        "With stream: true, chunks as unnamed events, and `data: [DONE]` as the last. A failure after the first chunk is an event with the error envelope, then `[DONE]`.",
      ),
    ],
  },
  errors: modelErrors,
};
