// OpenAPI descriptions of POST /v1/rerank and POST /rerank, and the schema of the response.
import { z } from "zod";
import { jsonAnswer, modelErrors, type Operation } from "../operation.ts";
import { rerankRequestSchema } from "./request.ts";

const tokens = z.int().min(0);

const result = z.strictObject({
  index: z.int().min(0).meta({ description: "Index of the document in the request." }),
  relevance_score: z.number().meta({
    description:
      "A higher score is more relevant. From 0 to 1; of a ColBERT model, up to the number of the query's vectors.",
  }),
  document: z.strictObject({ text: z.string() }).optional(),
});

export const rerankingSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("list"),
    model: z.string(),
    results: z.array(result).min(1).meta({ description: "The documents, the most relevant first." }),
    usage: z.strictObject({ prompt_tokens: tokens, total_tokens: tokens }),
  })
  .meta({ id: "Reranking" });

export type WireReranking = z.output<typeof rerankingSchema>;

export const rerankOperation: Operation = {
  id: "createReranking",
  tag: "Inference",
  summary: "Rank documents by relevance",
  description:
    "Scores each document with the query. Needs a reranker, a model with pooling type rank, or a ColBERT model. The score is the " +
    "sigmoid of the model's output, or the probability of its first label if it has several. For a ColBERT model it is the sum, over " +
    "the query's vectors, of the largest product with a vector of the document (MaxSim).",
  body: rerankRequestSchema,
  answers: jsonAnswer(rerankingSchema, "The documents with their scores, the most relevant first"),
  errors: modelErrors,
};

export const shortRerankOperation: Operation = { ...rerankOperation, id: "createRerankingShort" };
