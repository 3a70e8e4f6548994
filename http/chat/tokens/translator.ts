// Translates the bodies of POST /tokenize and POST /detokenize.
import type { TokenSource } from "../../../actors/api/inference.ts";
import { validate } from "../../json.ts";
import { ignoredFields } from "../../shared/ignored.ts";
import type { BodyTranslator, Translation } from "../../shared/translation.ts";
import { detokenizeRequestSchema, tokenizeRequestSchema, tokenSource } from "./request.ts";

export interface TokensTranslation extends Translation {
  readonly source: TokenSource;
  readonly wantsPieces: boolean;
  /** Whether the response has only the tokens. */
  readonly isShort: boolean;
}

export const tokenizeTranslator: BodyTranslator<TokensTranslation> = {
  name: "tokenize",
  translate(value) {
    const body = validate(tokenizeRequestSchema, value);
    const isShort = typeof body.content === "string";
    return {
      model: body.model,
      ignored: ignoredFields(tokenizeRequestSchema, body),
      source: tokenSource(body),
      wantsPieces: (isShort ? body.with_pieces : body.return_token_strs) ?? false,
      isShort,
    };
  },
  pack: (translated) => ({ value: translated }),
};

export const detokenizeTranslator: BodyTranslator<TokensTranslation> = {
  name: "detokenize",
  translate(value) {
    const { model, tokens } = validate(detokenizeRequestSchema, value);
    const source: TokenSource = { kind: "tokens", tokens: Int32Array.from(tokens) };
    return { model, ignored: [], source, wantsPieces: false, isShort: false };
  },
  pack: (translated) => ({ value: translated }),
};
