// Translator from the body of POST /v1/rerank to a request for scores.
import { acceptedBody } from "../shared/accepted-body.ts";
import type { BodyTranslator, Translation } from "../shared/translation.ts";
import { type AskedScores, askedScores, rerankRequestSchema, textsOf } from "./request.ts";

export interface RerankTranslation extends Translation {
  /** Maximum number of results to return. */
  readonly most: number;
  /** Texts of the documents; null unless the results include them. */
  readonly documents: readonly string[] | null;
  readonly asked: AskedScores;
}

export const rerankTranslator: BodyTranslator<RerankTranslation> = {
  name: "rerank",
  translate(value, _parameters, unknownFields) {
    const { body, ignored } = acceptedBody(rerankRequestSchema, value, unknownFields);
    return {
      model: body.model,
      ignored,
      most: body.top_n ?? body.documents.length,
      documents: body.return_documents ? textsOf(body) : null,
      asked: askedScores(body),
    };
  },
  pack(translated) {
    const { values, ends } = translated.asked.inputs;
    return { value: translated, transfer: [values.buffer as ArrayBuffer, ends.buffer as ArrayBuffer] };
  },
};
