// Owns what a route says of itself for the API document: what it takes, what it answers, which errors it has. Each protocol
// folder describes its own routes; the table in routes.ts puts them together.
import type { z } from "zod";
import type { ErrorCode } from "../runtime/errors.ts";

export type Tag = "Inference" | "Models" | "LoRA adapters" | "Operations" | "MCP";

/** One kind of body: its schema, and what it is in words. */
export interface Content {
  readonly contentType: string;
  /** Of an event stream: the schema of each event's `data` that is JSON. Left out of text that has no schema. */
  readonly schema?: z.ZodType;
  readonly description: string;
}

export interface Operation {
  /** Its name in the document, in camelCase: schemas without an id of their own are named after it. */
  readonly id: string;
  readonly tag: Tag;
  readonly summary: string;
  readonly description?: string;
  /** Parameters in the path and behind `?`. */
  readonly path?: z.ZodObject;
  readonly query?: z.ZodObject;
  /** The body it takes, JSON; the schema that really reads it. */
  readonly body?: z.ZodType;
  /** What it answers when all is well, by status. */
  readonly answers: Readonly<Record<number, readonly Content[]>>;
  /** The setting that names its port, where it is not served with the others. */
  readonly portSetting?: string;
  /** Errors of its own; those that every route of its kind may have are added. */
  readonly errors: readonly ErrorCode[];
}

/** What may go wrong wherever a model is asked for something. */
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

/** An answer that is one JSON body. */
export function jsonAnswer(schema: z.ZodType, description: string): Operation["answers"] {
  return { 200: [{ contentType: "application/json", schema, description }] };
}

/** An answer that is a stream where the request asks for one: `event` is the schema of each event's data. */
export function streamContent(event: z.ZodType, description: string): Content {
  return { contentType: "text/event-stream", schema: event, description };
}
