// Request of POST /v1/rerank: its schema and its translation to an EmbedRequest with a query.
import { z } from "zod";
import type { EmbedRequest } from "../../actors/api/inference.ts";
import { expected } from "../issues.ts";
import { packedTexts } from "../shared/fields/embed-inputs.ts";
import { commonFields, ignored, isEmptyArray, notBuiltYet } from "../shared/fields/fields.ts";

const MAX_DOCUMENTS = 2048;
const WHOLE = "every document is scored as a whole";

const { model, priority, user } = commonFields;

const document = z.union([z.string().min(1), z.object({ text: z.string().min(1) })], {
  error: expected("a text or an object with a text"),
});

export const rerankRequestSchema = z.strictObject({
  model,
  query: z.string().min(1).meta({ description: "Text that the documents are compared with." }),
  documents: z
    .array(document)
    .min(1)
    .max(MAX_DOCUMENTS)
    .meta({ description: "Texts, or objects with the field `text`." }),
  top_n: z.int().min(1).nullish().meta({ description: "Number of results; by default all documents." }),
  return_documents: z
    .boolean()
    .nullish()
    .meta({ description: "Include the text of each document in its result.", default: false }),
  rank_fields: notBuiltYet("scoring other fields than text", isEmptyArray),
  max_tokens_per_doc: ignored(z.int(), WHOLE),
  max_chunks_per_doc: ignored(z.int(), WHOLE),
  priority,
  user,
});

export type RerankRequestBody = z.output<typeof rerankRequestSchema>;

/** EmbedRequest without the model and the client. */
export type AskedScores = Pick<EmbedRequest, "inputs" | "truncateInputs" | "priority"> & { readonly query: string };

export function textsOf({ documents }: RerankRequestBody): readonly string[] {
  return documents.map((document) => (typeof document === "string" ? document : document.text));
}

export function askedScores(body: RerankRequestBody): AskedScores {
  return {
    inputs: packedTexts(textsOf(body)),
    query: body.query,
    truncateInputs: false,
    priority: body.priority ?? 0,
  };
}
