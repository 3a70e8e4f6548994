// Owns what the API document says of responses: of making one, and of those that are kept.
import { z } from "zod";
import { jsonAnswer, modelErrors, type Operation, streamContent } from "../operation.ts";
import { deletedSchema, inputItemListSchema, responseEventSchema, responseSchema } from "./fold/resource-schema.ts";
import { inputItemsQuery, retrieveQuery } from "./request/query.ts";
import { responseRequestSchema } from "./request/request.ts";

const path = z.strictObject({ response_id: z.string().meta({ description: "Id of a response" }) });

const stream = streamContent(
  responseEventSchema,
  "Named events, numbered without gaps from 0; exactly one of response.completed, response.failed and response.incomplete is the last one, then `data: [DONE]`. What was cancelled ends with response.incomplete",
);

const json = { contentType: "application/json", schema: responseSchema, description: "The response" };

export const createResponseOperation: Operation = {
  id: "createResponse",
  tag: "Inference",
  summary: "Answer a conversation with a response, which is kept",
  description:
    "With store, which is the default, the response can be fetched by its id and gone on from by previous_response_id. " +
    "With background it is generated whether or not the client waits: as many at once as the setting max_background_responses says, and 256 MiB of requests in all; more is queue_full. " +
    "Without, a client that hangs up ends it: it is kept as incomplete, with what there was. What is too large to be kept is found as failed.",
  body: responseRequestSchema,
  answers: { 200: [json, stream] },
  errors: [...modelErrors, "not_found", "conflict", "storage_unavailable"],
};

export const retrieveResponseOperation: Operation = {
  id: "retrieveResponse",
  tag: "Inference",
  summary: "Show a response, or its stream once more",
  description:
    "With stream=true: the events of a response that was created with background and stream, from the first, or from the one after starting_after; where it still runs, the stream goes on with it.",
  path,
  query: retrieveQuery,
  answers: { 200: [json, stream] },
  errors: ["not_found", "invalid_value", "storage_unavailable", "peer_gone", "timeout"],
};

export const deleteResponseOperation: Operation = {
  id: "deleteResponse",
  tag: "Inference",
  summary: "Delete a response; one that is still generated is ended",
  path,
  answers: jsonAnswer(deletedSchema, "It is gone"),
  errors: ["not_found", "storage_unavailable", "peer_gone", "timeout"],
};

export const cancelResponseOperation: Operation = {
  id: "cancelResponse",
  tag: "Inference",
  summary: "Cancel a response that is queued or in progress in the background",
  description: "The engine stops before its next step. What has been cancelled already is shown again.",
  path,
  answers: jsonAnswer(responseSchema, "The response, cancelled"),
  errors: ["not_found", "storage_unavailable", "peer_gone", "timeout"],
};

export const listInputItemsOperation: Operation = {
  id: "listResponseInputItems",
  tag: "Inference",
  summary: "List the items that came with a response's request",
  path,
  query: inputItemsQuery,
  answers: jsonAnswer(inputItemListSchema, "A page of the items"),
  errors: ["not_found", "invalid_value", "storage_unavailable", "peer_gone", "timeout"],
};
