// Translators of the bodies of POST /tokenize and POST /detokenize.
import type { TokenSource } from "../../../actors/api/inference.ts";
import { acceptedBody } from "../../shared/accepted-body.ts";
import type { BodyTranslator, Translation } from "../../shared/translation.ts";
import { detokenizeRequestSchema, tokenizeRequestSchema, tokenSource } from "./request.ts";

export interface TokensTranslation extends Translation {
  readonly source: TokenSource;
  readonly wantsPieces: boolean;
  /** Whether the response contains only the tokens (llama-server's form). */
  readonly isShort: boolean;
}

export const tokenizeTranslator: BodyTranslator<TokensTranslation> = {
  name: "tokenize",
  translate(value, _parameters, unknownFields) {
    const { body, ignored } = acceptedBody(tokenizeRequestSchema, value, unknownFields);
    const isShort = typeof body.content === "string";
    return {
      model: body.model,
      ignored,
      source: tokenSource(body),
      wantsPieces: (isShort ? body.with_pieces : body.return_token_strs) ?? false,
      isShort,
    };
  },
  pack: (translated) => ({ value: translated }),
};

export const detokenizeTranslator: BodyTranslator<TokensTranslation> = {
  name: "detokenize",
  translate(value, _parameters, unknownFields) {
    const { body, ignored } = acceptedBody(detokenizeRequestSchema, value, unknownFields);
    const source: TokenSource = { kind: "tokens", tokens: Int32Array.from(body.tokens) };
    return { model: body.model, ignored, source, wantsPieces: false, isShort: false };
  },
  pack: (translated) => ({ value: translated }),
};
