// Owns choosing how a vocabulary encodes: which encoder, how tokens spell bytes and spaces, and whether prompts start with
// BOS. Knows the tokenizer names of model files and refuses those it does not know.
import { ServerError } from "../../runtime/errors.ts";
import type { TokenizerMetadata } from "../gguf/metadata.ts";
import { bytePairEncoder, type Encoder, sentencePieceEncoder, wordPieceEncoder } from "./encoders.ts";
import type { Spelling } from "./pieces.ts";
import { findPreTokenizer, preTokenizerNames } from "./pre-tokenizers.ts";
import type { TokenKind } from "./token-kinds.ts";

interface EncodingPlan {
  readonly encoder: Encoder;
  readonly spelling: Spelling;
  readonly isSentencePiece: boolean;
  readonly addsBos: boolean;
  /** Whatever the file says. */
  readonly forcesBos: boolean;
  readonly defaultBos: number | null;
  /** What stands behind a whole text, if anything. */
  readonly closing: number | null;
}

export function planEncoding(tokenizer: TokenizerMetadata, kinds: readonly TokenKind[]): EncodingPlan {
  // Without the control tokens: joining "<" and "s>" in a user's text must not make one.
  const ids = new Map<string, number>();
  tokenizer.tokens.forEach((text, token) => {
    if (kinds[token] !== "control" && kinds[token] !== "shown-control") ids.set(text, token);
  });
  const { model } = tokenizer;
  if (model === "gpt2" || model === "gemma4") {
    const preName = model === "gemma4" ? model : (tokenizer.pre ?? "default");
    const pre = findPreTokenizer(preName) ?? refuse("pre-tokenizer", preName, preTokenizerNames);
    return {
      encoder: bytePairEncoder(tokenizer, ids, pre),
      spelling: pre.spellsSpaces ? "spaces" : "bytes",
      isSentencePiece: false,
      addsBos: pre.addsBos,
      forcesBos: pre.spellsSpaces && pre.addsBos,
      defaultBos: null,
      closing: tokenizer.addEos ? tokenizer.eosId : null,
    };
  }
  const isSentencePiece = model === "llama";
  if (!isSentencePiece && model !== "bert") refuse("tokenizer", model, ["gpt2", "llama", "bert", "gemma4"]);
  return {
    encoder: isSentencePiece ? sentencePieceEncoder(tokenizer, ids) : wordPieceEncoder(tokenizer),
    spelling: "spaces",
    isSentencePiece,
    addsBos: true,
    forcesBos: false,
    defaultBos: isSentencePiece ? 1 : 101,
    closing: isSentencePiece ? (tokenizer.addEos ? tokenizer.eosId : null) : (tokenizer.separatorId ?? 102),
  };
}

function refuse(what: string, found: string, known: readonly string[]): never {
  throw new ServerError(
    "model_file_invalid",
    `the model's ${what} is ${JSON.stringify(found)}, which is not supported; supported are ${known.join(", ")}`,
  );
}
