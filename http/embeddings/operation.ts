// OpenAPI description of POST /v1/embeddings, and the schema of the response body that response.ts writes.
import { z } from "zod";
import { jsonAnswer, modelErrors, type Operation } from "../operation.ts";
import { embeddingRequestSchema } from "./request.ts";

const embedding = z.strictObject({
  object: z.literal("embedding"),
  index: z.int().min(0).meta({ description: "Index of the input." }),
  embedding: z.union([z.array(z.number()), z.array(z.array(z.number())).min(1), z.string()]).meta({
    description:
      "Unit vector as numbers, or as little-endian 32-bit floats in base64. A ColBERT model gives such a vector for each token: " +
      "an array of vectors, or one after another in base64.",
  }),
  shape: z
    .array(z.int().min(1))
    .length(2)
    .optional()
    .meta({ description: "For a ColBERT model: number of vectors and length of each. Absent: there is one vector." }),
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
    "An encoder uses its own pooling. A generative model returns the mean of its last hidden states, if its engine supports it. A " +
    "ColBERT model returns a vector for each token; those of punctuation in documents are left out, as the model says, and a query " +
    "is filled with mask tokens.",
  body: embeddingRequestSchema,
  answers: jsonAnswer(embeddingListSchema, "One vector per input, in order"),
  errors: modelErrors,
};
