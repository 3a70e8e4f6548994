// Token conversion: converts text or a chat to a model's tokens, and tokens to text, for clients that count or truncate tokens.
// Runs on a text worker.
import { greedySampling, requestDefaults } from "../../engines/generation.ts";
import { chooseMarker } from "../../engines/text/template/user-text.ts";
import type { Vocabulary } from "../../engines/text/tokenizer/vocabulary.ts";
import type { ConvertedTokens, TokenSource } from "../api/inference.ts";
import type { TextModel } from "./text-model.ts";

/** Returns the tokens of a text source, or the text of a token source. Throws `invalid_value` for an unknown token. */
export function convertedTokens(model: TextModel, source: TokenSource, wantsPieces: boolean): ConvertedTokens {
  const { vocabulary, sequenceTokens: maxModelLength } = model;
  const tokens = tokensOf(model, source);
  return {
    tokens,
    text: source.kind === "tokens" ? textOf(vocabulary, tokens) : null,
    pieces: wantsPieces ? Array.from(tokens, (token) => pieceOf(vocabulary, token)) : null,
    maxModelLength,
  };
}

function tokensOf(model: TextModel, source: TokenSource): Int32Array {
  const { vocabulary } = model;
  switch (source.kind) {
    case "tokens":
      return model.knownTokens(source.tokens, "tokens");
    case "chat": {
      const { prompt, tools } = source;
      const asked = { ...requestDefaults, model: model.id, client: "", sampling: greedySampling, prompt, tools };
      return model.prompt(asked).prompt;
    }
    case "text": {
      const { text, addsSpecial, readsControl } = source;
      if (readsControl) return vocabulary.encodePrompt({ text, marker: chooseMarker([text]) }, addsSpecial);
      return addsSpecial ? vocabulary.encodeCompletion(text) : vocabulary.encode(text);
    }
  }
}

function textOf(vocabulary: Vocabulary, tokens: Int32Array): string {
  const bytes = Buffer.concat(Array.from(tokens, (token) => bytesOf(vocabulary, token)));
  const text = bytes.toString("utf8");
  // Removes the leading space that the encoder adds to texts.
  return vocabulary.addsSpacePrefix && text.startsWith(" ") ? text.slice(1) : text;
}

function bytesOf(vocabulary: Vocabulary, token: number): Uint8Array {
  return vocabulary.isControl(token) ? Buffer.from(vocabulary.tokenText(token)) : vocabulary.piece(token);
}

function pieceOf(vocabulary: Vocabulary, token: number): string | number[] {
  if (vocabulary.isControl(token)) return vocabulary.tokenText(token);
  return vocabulary.pieceText(token) ?? [...vocabulary.piece(token)];
}
