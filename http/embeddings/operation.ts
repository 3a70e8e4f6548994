// OpenAPI description of POST /v1/embeddings, and the schema of the response body that response.ts writes.
import { z } from "zod";
import { jsonAnswer, modelErrors, type Operation } from "../operation.ts";
import { embeddingRequestSchema } from "./request.ts";

const embedding = z.strictObject({
  object: z.literal("embedding"),
  index: z.int().min(0).meta({ description: "Index of the input." }),
  embedding: z
    .union([z.array(z.number()), z.string()])
    .meta({ description: "Unit vector as numbers, or as little-endian 32-bit floats in base64." }),
});

const tokens = z.int().min(0);

export const embeddingListSchema = z
  .strictObject({
    object: z.literal("list"),
    data: z.array(embedding).min(1),
    model: z.string(),
    usage: z.strictObject({ prompt_tokens: tokens, total_tokens: tokens }),
  })
  .meta({ id: "EmbeddingList" });

export const embeddingOperation: Operation = {
  id: "createEmbedding",
  tag: "Inference",
  summary: "Create embeddings",
  description:
    "An encoder uses its own pooling. A generative model returns the mean of its last hidden states, if its engine supports it.",
  body: embeddingRequestSchema,
  answers: jsonAnswer(embeddingListSchema, "One vector per input, in order"),
  errors: modelErrors,
};
