// Operation: description of a route for the API document, with the request, the responses and the errors. Each protocol folder
// describes its own routes; routes.ts collects the descriptions.
import type { z } from "zod";
import type { ErrorCode } from "../runtime/errors.ts";

export type Tag = "Inference" | "Audio" | "Agents" | "Ollama" | "Models" | "LoRA adapters" | "Operations" | "MCP";

/** Response body of one content type. */
export interface Content {
  readonly contentType: string;
  /** Schema of the JSON body, or of the JSON data of each event in a stream; absent for plain text. */
  readonly schema?: z.ZodType;
  readonly description: string;
}

export interface Operation {
  /** operationId in camelCase. Schemas without an id are named after it. */
  readonly id: string;
  readonly tag: Tag;
  readonly summary: string;
  readonly description?: string;
  /** Schema of the path parameters. */
  readonly path?: z.ZodObject;
  /** Schema of the query parameters. */
  readonly query?: z.ZodObject;
  /** Schema that parses the JSON body, or describes the fields of a form. */
  readonly body?: z.ZodType;
  /** Whether the body is a form (multipart/form-data) instead of JSON. */
  readonly takesForm?: true;
  /** Successful responses, by HTTP status. */
  readonly answers: Readonly<Record<number, readonly Content[]>>;
  /** Name of the setting with the port number, if the route is served on a separate port. */
  readonly portSetting?: string;
  /** Error codes of the operation, in addition to the codes that every route of its kind has. */
  readonly errors: readonly ErrorCode[];
}

/** Errors that any request to a model may cause. */
export const modelErrors = [
  "model_not_found",
  "unsupported",
  "context_length_exceeded",
  "queue_full",
  "queue_timeout",
  "mailbox_full",
  "model_loading",
  "model_source_unreachable",
  "timeout",
  "cancelled",
  "model_failed",
  "model_file_invalid",
  "peer_gone",
] as const satisfies readonly ErrorCode[];

/** Describes a 200 response with a JSON body. */
export function jsonAnswer(schema: z.ZodType, description: string): Operation["answers"] {
  return { 200: [{ contentType: "application/json", schema, description }] };
}

/** Describes an event stream; `event` is the schema of the data of an event. */
export function streamContent(event: z.ZodType, description: string): Content {
  return { contentType: "text/event-stream", schema: event, description };
}
