// Owns what the API document says of the messages routes.
import { z } from "zod";
import { jsonAnswer, modelErrors, type Operation, streamContent } from "../operation.ts";
import { messagesErrors } from "./errors.ts";
import { countRequestSchema, messagesRequestSchema } from "./request/request.ts";
import { contentBlockSchema, messageDeltaSchema, messageSchema } from "./response.ts";

const index = z.int().min(0);

const delta = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("thinking_delta"), thinking: z.string() }),
  z.strictObject({ type: z.literal("signature_delta"), signature: z.string() }),
  z.strictObject({ type: z.literal("text_delta"), text: z.string() }),
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
  "With stream=true, named events: `message_start` with the input's usage, `ping`, then of each block " +
  "`content_block_start`, `content_block_delta`s and `content_block_stop`, one block after another with indices from 0; " +
  "`message_delta` with why it stopped and the whole usage; `message_stop`. `ping` comes whenever nothing else does for a " +
  "while; before `message_start` it is a comment. A stream that fails ends in an `error` event with the body of an error.";

export const messagesOperation: Operation = {
  id: "createMessage",
  tag: "Inference",
  summary: "Answers a conversation, in the messages protocol",
  description:
    "The headers anthropic-version, anthropic-beta, alt-version and alt-beta are accepted and ignored. " +
    "The last message is a user's: an assistant's message is not continued.",
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
  summary: "Counts the tokens of a conversation's prompt",
  description:
    "Takes what POST /v1/messages takes, but max_tokens and stream, and counts what the model would be shown.",
  body: countRequestSchema,
  answers: jsonAnswer(z.strictObject({ input_tokens: z.int().min(0) }), "The tokens of the prompt"),
  errors: modelErrors,
};
