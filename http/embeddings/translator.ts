// Translator from the body of POST /v1/embeddings to an embedding request.
import { acceptedBody } from "../shared/accepted-body.ts";
import type { AskedEmbeddings } from "../shared/answer/send-embeddings.ts";
import type { BodyTranslator, Translation } from "../shared/translation.ts";
import { askedEmbeddings, embeddingRequestSchema } from "./request.ts";

export interface EmbeddingTranslation extends Translation {
  readonly format: "float" | "base64";
  readonly asked: AskedEmbeddings;
}

export const embeddingTranslator: BodyTranslator<EmbeddingTranslation> = {
  name: "embeddings",
  translate(value, _parameters, unknownFields) {
    const { body, ignored } = acceptedBody(embeddingRequestSchema, value, unknownFields);
    return { model: body.model, ignored, format: body.encoding_format ?? "float", asked: askedEmbeddings(body) };
  },
  pack(translated) {
    const { values, ends } = translated.asked.inputs;
    return { value: translated, transfer: [values.buffer as ArrayBuffer, ends.buffer as ArrayBuffer] };
  },
};
