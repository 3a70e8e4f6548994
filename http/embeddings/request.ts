// Owns the request of POST /v1/embeddings: its schema, and what it means as an EmbedRequest.
import { z } from "zod";
import type { EmbedRequest } from "../../actors/inference.ts";
import { commonFields, notBuiltYet } from "../fields.ts";
import { expected } from "../issues.ts";

const MAX_INPUTS = 2048;

const text = z.string().min(1);
// Whether the model has the token is for the agents side to say.
const token = z.int().min(0);
const entry = z.union([token, text, z.array(token).min(1)], {
  error: expected("a text, a token or an array of tokens"),
});

const input = z
  .union([text, z.array(entry).min(1)], {
    error: expected("a text, an array of texts, an array of tokens or an array of such arrays"),
  })
  .superRefine((value, context) => {
    if (typeof value === "string") return;
    const kind = typeof value[0];
    if (value.some((some) => typeof some !== kind)) {
      context.addIssue({ code: "custom", message: "expected texts, tokens or arrays of tokens, got some of each" });
    } else if (kind !== "number" && value.length > MAX_INPUTS) {
      context.addIssue({ code: "custom", message: `expected at most ${MAX_INPUTS} inputs, got ${value.length}` });
    }
  });

const { model, truncate_sequence, priority, user } = commonFields;

export const embeddingRequestSchema = z.strictObject({
  model,
  input,
  encoding_format: z.enum(["float", "base64"]).nullish(),
  dimensions: notBuiltYet("shortening embeddings"),
  truncate_sequence,
  priority,
  user,
});

export type EmbeddingRequestBody = z.output<typeof embeddingRequestSchema>;

/** The neutral request a body asks for, of the model it resolved to, for a client. */
export function toEmbedRequest(body: EmbeddingRequestBody, model: string, client: string): EmbedRequest {
  return {
    model,
    client,
    inputs: inputsOf(body.input),
    truncateInputs: body.truncate_sequence ?? false,
    priority: body.priority ?? 0,
  };
}

function inputsOf(given: EmbeddingRequestBody["input"]): EmbedRequest["inputs"] {
  if (typeof given === "string") return [given];
  // The schema has seen to it that all are of one kind.
  if (typeof given[0] === "number") return [given as number[]];
  return given as string[] | number[][];
}
