// OpenAPI description of the messages routes.
import { z } from "zod";
import { jsonAnswer, modelErrors, type Operation, streamContent } from "../operation.ts";
import { messagesErrors } from "./errors.ts";
import { countRequestSchema, messagesRequestSchema } from "./request/request.ts";
import { contentBlockSchema, messageDeltaSchema, messageSchema } from "./response.ts";
import { citationSchema } from "./web-blocks.ts";

const index = z.int().min(0);

const delta = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("thinking_delta"), thinking: z.string() }),
  z.strictObject({ type: z.literal("signature_delta"), signature: z.string() }),
  z.strictObject({ type: z.literal("text_delta"), text: z.string() }),
  z.strictObject({ type: z.literal("citations_delta"), citation: citationSchema }),
  z.strictObject({ type: z.literal("input_json_delta"), partial_json: z.string() }),
]);

export const streamEventSchema = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("message_start"), message: messageSchema }),
  z.strictObject({ type: z.literal("ping") }),
  z.strictObject({ type: z.literal("content_block_start"), index, content_block: contentBlockSchema }),
  z.strictObject({ type: z.literal("content_block_delta"), index, delta }),
  z.strictObject({ type: z.literal("content_block_stop"), index }),
  messageDeltaSchema,
  z.strictObject({ type: z.literal("message_stop") }),
]);

const STREAM =
  "With stream=true, named events: `message_start` with the input usage, `ping`, then for each block in turn, with indices " +
  "from 0, `content_block_start`, `content_block_delta`s and `content_block_stop`; `message_delta` with the stop reason and " +
  "the total usage; `message_stop`. `ping` keeps an idle stream alive; before `message_start` it is a comment. A failed " +
  "stream ends with an `error` event that has the body of an error.";

export const messagesOperation: Operation = {
  id: "createMessage",
  tag: "Inference",
  summary: "Create a message",
  description:
    "The headers anthropic-version, anthropic-beta, alt-version and alt-beta are accepted and ignored. " +
    "An assistant message at the end is continued; the response is only the continuation.",
  body: messagesRequestSchema,
  answers: {
    200: [
      { contentType: "application/json", schema: messageSchema, description: "The message" },
      streamContent(z.union([streamEventSchema, messagesErrors.schema]), STREAM),
    ],
  },
  errors: modelErrors,
};

export const countTokensOperation: Operation = {
  id: "countMessageTokens",
  tag: "Inference",
  summary: "Count the prompt tokens of a message request",
  description: "Applies the chat template to the request as POST /v1/messages does, without generating.",
  body: countRequestSchema,
  answers: jsonAnswer(z.strictObject({ input_tokens: z.int().min(0) }), "The number of prompt tokens"),
  errors: modelErrors,
};
