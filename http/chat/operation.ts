// OpenAPI description of POST /v1/chat/completions.
import { z } from "zod";
import { commonErrors } from "../errors.ts";
import { modelErrors, type Operation, streamContent } from "../operation.ts";
import { approvalRequestSchema, fileObjectSchema, progressSchema } from "../shared/agent/wire.ts";
import { chatRequestSchema } from "./request.ts";
import { chatChunkSchema, chatCompletionSchema } from "./schemas.ts";

export const chatOperation: Operation = {
  id: "createChatCompletion",
  tag: "Inference",
  summary: "Create a chat completion",
  description: "Applies the model's chat template to the conversation and generates the next message.",
  body: chatRequestSchema,
  answers: {
    200: [
      {
        contentType: "application/json",
        schema: chatCompletionSchema,
        description: "The completion, unless stream is true",
      },
      streamContent(
        z.union([chatChunkSchema, commonErrors.schema, progressSchema, approvalRequestSchema, fileObjectSchema]),
        "With stream: true, chunks as unnamed events, then `data: [DONE]`. A failure after the first chunk is an event with the error envelope, then `[DONE]`. With server tools also the events `agentic_tool_call_progress`, `agentic_tool_approval_required` and `file_produced`.",
      ),
    ],
  },
  errors: modelErrors,
};
