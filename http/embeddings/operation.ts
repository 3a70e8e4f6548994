// Owns what the API document says of POST /v1/embeddings, with the schema of the answer that response.ts writes.
import { z } from "zod";
import { jsonAnswer, modelErrors, type Operation } from "../operation.ts";
import { embeddingRequestSchema } from "./request.ts";

const embedding = z.strictObject({
  object: z.literal("embedding"),
  index: z.int().min(0).meta({ description: "Of the input it belongs to" }),
  embedding: z
    .union([z.array(z.number()), z.string()])
    .meta({ description: "Numbers, or little-endian 32-bit floats in base64; of length 1 as a vector" }),
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
  summary: "Turn texts into vectors",
  description:
    "A model that generates text answers with the mean of its last hidden states, where its engine can; an encoder with its own pooling.",
  body: embeddingRequestSchema,
  answers: jsonAnswer(embeddingListSchema, "A vector an input, in their order"),
  errors: modelErrors,
};
