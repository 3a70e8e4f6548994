// OpenAPI description of the responses routes.
import { z } from "zod";
import { jsonAnswer, modelErrors, type Operation, streamContent } from "../operation.ts";
import { pageQuery } from "../shared/fields/page-query.ts";
import {
  compactedSchema,
  deletedSchema,
  inputItemListSchema,
  responseEventSchema,
  responseSchema,
} from "./fold/resource-schema.ts";
import { inputItemsQuery, retrieveQuery } from "./request/query.ts";
import { compactRequestSchema, responseRequestSchema } from "./request/request.ts";
import { responseListSchema } from "./stored/list-route.ts";

const path = z.strictObject({ response_id: z.string().meta({ description: "Response id." }) });

const stream = streamContent(
  responseEventSchema,
  "Named events, numbered without gaps from 0; the last one is response.completed, response.failed or response.incomplete, followed by `data: [DONE]`. A cancelled response ends with response.incomplete",
);

const json = { contentType: "application/json", schema: responseSchema, description: "The response" };

export const createResponseOperation: Operation = {
  id: "createResponse",
  tag: "Inference",
  summary: "Create a response, stored by default",
  description:
    "With store (default true) the response can be retrieved by its id and continued with previous_response_id. " +
    "With background it is generated even if the client disconnects; beyond max_background_responses at once, or 256 MiB of their requests in total, the error is queue_full. " +
    "Without background a disconnect ends the response: its partial output is stored as incomplete. A response too large to store is stored as failed, without its output. " +
    "The path also accepts WebSocket connections. Each message is a body with `type: response.create`; the events of the stream are returned as messages, without [DONE]. " +
    "An error is a message `{type: error, status, error}`. One response runs at a time. With store: false, the connection's last response can be continued with previous_response_id.",
  body: responseRequestSchema,
  answers: { 200: [json, stream] },
  errors: [
    ...modelErrors,
    "previous_response_not_found",
    "websocket_connection_limit_reached",
    "not_found",
    "conflict",
    "storage_unavailable",
  ],
};

export const compactResponseOperation: Operation = {
  id: "compactResponse",
  tag: "Inference",
  summary: "Replace a conversation by a summary",
  description:
    "The model writes a summary of at most 2048 tokens, of at most as many tokens as the conversation has bytes, and not longer than the rest of the context. To continue, send the items of `output` as the beginning of `input`, without previous_response_id. System and developer messages are returned unchanged. Nothing is stored.",
  body: compactRequestSchema,
  answers: jsonAnswer(compactedSchema, "The compacted conversation"),
  errors: [...modelErrors, "previous_response_not_found", "not_found", "conflict", "storage_unavailable"],
};

export const countInputTokensOperation: Operation = {
  id: "countResponseInputTokens",
  tag: "Inference",
  summary: "Count the prompt tokens of a response request",
  description: "Applies the chat template to the request as POST /v1/responses does, without generating.",
  body: responseRequestSchema,
  answers: jsonAnswer(
    z.strictObject({ object: z.literal("response.input_tokens"), input_tokens: z.int().min(0) }),
    "The number of prompt tokens",
  ),
  errors: [...modelErrors, "previous_response_not_found", "not_found", "conflict", "storage_unavailable"],
};

export const listResponsesOperation: Operation = {
  id: "listResponses",
  tag: "Inference",
  summary: "List the stored responses of all clients, the newest first",
  description:
    "A response is in the list as soon as it is stored: in the background or with stream at its beginning, else at its end.",
  query: pageQuery,
  answers: jsonAnswer(responseListSchema, "A page of responses"),
  errors: ["storage_unavailable", "peer_gone", "timeout"],
};

export const retrieveResponseOperation: Operation = {
  id: "retrieveResponse",
  tag: "Inference",
  summary: "Retrieve a response, or replay its stream",
  description:
    "With stream=true the events of a response created with background and stream are replayed, from the first or from the one after starting_after; if the response is still running, the stream continues live.",
  path,
  query: retrieveQuery,
  answers: { 200: [json, stream] },
  errors: ["not_found", "invalid_value", "storage_unavailable", "peer_gone", "timeout"],
};

export const deleteResponseOperation: Operation = {
  id: "deleteResponse",
  tag: "Inference",
  summary: "Delete a response; ends its generation if it is running",
  path,
  answers: jsonAnswer(deletedSchema, "The deletion"),
  errors: ["not_found", "storage_unavailable", "peer_gone", "timeout"],
};

export const cancelResponseOperation: Operation = {
  id: "cancelResponse",
  tag: "Inference",
  summary: "Cancel a background response that is queued or in progress",
  description: "The engine stops before its next step. Cancelling again returns the cancelled response.",
  path,
  answers: jsonAnswer(responseSchema, "The cancelled response"),
  errors: ["not_found", "storage_unavailable", "peer_gone", "timeout"],
};

export const listInputItemsOperation: Operation = {
  id: "listResponseInputItems",
  tag: "Inference",
  summary: "List the input items of a response",
  path,
  query: inputItemsQuery,
  answers: jsonAnswer(inputItemListSchema, "A page of input items"),
  errors: ["not_found", "invalid_value", "storage_unavailable", "peer_gone", "timeout"],
};
