// Encoding plan: the encoder of a vocabulary, the way its tokens represent bytes and spaces, and the tokens added at
// the start and end of a text. Supports the tokenizer names of model files with llama.cpp's defaults for each; rejects
// other names.
import { ServerError } from "../../../../runtime/errors.ts";
import type { TokenizerMetadata } from "../../../files/gguf/metadata.ts";
import { type ExactRules, parseExactRules } from "../../../files/tokenizer-rules.ts";
import { exactEncoder } from "../exact/exact-encoder.ts";
import type { Spelling } from "../pieces.ts";
import type { TokenKind } from "../token-kinds.ts";
import { CharactersMap } from "./characters-map.ts";
import { bytePairEncoder, type Encoder, sentencePieceEncoder } from "./encoders.ts";
import { findPreTokenizer, preTokenizerNames } from "./pre-tokenizers.ts";
import { singleCharacters } from "./single-characters.ts";
import { unigramEncoder } from "./unigram.ts";
import { normalizer } from "./unigram-text.ts";
import { wordPieceEncoder } from "./word-piece.ts";

interface EncodingPlan {
  readonly encoder: Encoder;
  readonly spelling: Spelling;
  /** If true, a space is added before each fragment of text. */
  readonly addsSpacePrefix: boolean;
  /**
   * True if a token may represent more text than its own: spaces may be dropped, or one token may
   * represent a whole unknown word.
   */
  readonly isLossy: boolean;
  readonly addsBos: boolean;
  readonly bos: number | null;
  /** Token added after a complete text; null: none. */
  readonly closing: number | null;
  /** Exact rules of a tokenizer.json that the encoder follows; absent: it follows llama.cpp's rules. */
  readonly rules?: ExactRules;
}

type Plan = (tokenizer: TokenizerMetadata, kinds: readonly TokenKind[]) => EncodingPlan;

const plans: Readonly<Record<string, Plan>> = {
  gpt2: planBytePairs,
  gemma4: planBytePairs,
  whitespace: planBytePairs,
  llama: planSentencePiece,
  bert: planWordPiece,
  t5: planUnigram,
};

export function planEncoding(tokenizer: TokenizerMetadata, kinds: readonly TokenKind[]): EncodingPlan {
  const plan = Object.hasOwn(plans, tokenizer.model) ? plans[tokenizer.model] : undefined;
  const found = plan?.(tokenizer, kinds) ?? refuse("tokenizer", tokenizer.model, Object.keys(plans));
  const { rules: text = null } = tokenizer;
  if (text === null) return found;
  const rules = parseExactRules(text);
  return { ...found, encoder: exactEncoder(tokenizer, kinds, textTokens(tokenizer, kinds), rules), rules };
}

function planBytePairs(tokenizer: TokenizerMetadata, kinds: readonly TokenKind[]): EncodingPlan {
  const { model } = tokenizer;
  const preName = model === "gemma4" ? model : (tokenizer.pre ?? "default");
  const pre = findPreTokenizer(preName) ?? refuse("pre-tokenizer", preName, preTokenizerNames);
  const joinPairs = bytePairEncoder(tokenizer.merges, textTokens(tokenizer, kinds), pre);
  const skipsSpaces = model === "whitespace";
  const addsBos = pre.forcesBos || (tokenizer.addBos ?? pre.addsBos);
  const fallback = model === "gemma4" ? null : known(11, tokenizer);
  return {
    encoder: skipsSpaces ? withoutSpaces(joinPairs, tokenizer.lowersCase ?? preName !== "whitespace") : joinPairs,
    spelling: pre.symbols === "bytes" ? "bytes" : "spaces",
    addsSpacePrefix: false,
    isLossy: skipsSpaces,
    addsBos,
    bos: tokenizer.bosId ?? (addsBos ? fallback : null),
    closing: (tokenizer.addEos ?? false) ? (tokenizer.eosId ?? fallback) : null,
  };
}

function planSentencePiece(tokenizer: TokenizerMetadata, kinds: readonly TokenKind[]): EncodingPlan {
  const addsSpacePrefix = tokenizer.addSpacePrefix ?? true;
  return {
    encoder: sentencePieceEncoder(tokenizer, textTokens(tokenizer, kinds), addsSpacePrefix),
    spelling: "spaces",
    addsSpacePrefix,
    isLossy: false,
    addsBos: tokenizer.addBos ?? true,
    bos: tokenizer.bosId ?? known(1, tokenizer),
    closing: (tokenizer.addEos ?? false) ? (tokenizer.eosId ?? known(2, tokenizer)) : null,
  };
}

function planWordPiece(tokenizer: TokenizerMetadata, kinds: readonly TokenKind[]): EncodingPlan {
  const lowersCase = tokenizer.lowersCase ?? true;
  const rules = {
    lowersCase,
    stripsAccents: tokenizer.stripsAccents ?? lowersCase,
    unknown: tokenizer.unknownId ?? known(100, tokenizer) ?? 0,
  };
  return {
    encoder: wordPieceEncoder(textTokens(tokenizer, kinds), rules),
    spelling: "spaces",
    addsSpacePrefix: false,
    isLossy: true,
    // `addsBos` is always true, because llama.cpp ignores add_bos_token in a "bert" vocabulary.
    addsBos: true,
    bos: tokenizer.bosId ?? known(101, tokenizer),
    closing: tokenizer.separatorId ?? known(102, tokenizer),
  };
}

function planUnigram(tokenizer: TokenizerMetadata, kinds: readonly TokenKind[]): EncodingPlan {
  const { tokens, scores, charactersMap = null } = tokenizer;
  const addsSpacePrefix = tokenizer.addSpacePrefix ?? false;
  const removesExtraSpaces = tokenizer.removesExtraSpaces ?? false;
  const normalize = normalizer({
    map: charactersMap === null ? null : new CharactersMap(charactersMap),
    kept: tokens.filter((_, token) => kinds[token] === "user-defined"),
    addsSpacePrefix,
    removesExtraSpaces,
  });
  return {
    encoder: unigramEncoder(
      { tokens, kinds, scores, unknown: tokenizer.unknownId ?? known(2, tokenizer) ?? 0 },
      normalize,
    ),
    spelling: "spaces",
    addsSpacePrefix: addsSpacePrefix || removesExtraSpaces,
    isLossy: true,
    addsBos: tokenizer.addBos ?? false,
    bos: tokenizer.bosId,
    closing: (tokenizer.addEos ?? true) ? (tokenizer.eosId ?? known(1, tokenizer)) : null,
  };
}

/**
 * Returns token ids by text. Control tokens are excluded, because merging "<" and "s>" in a user's text must not create
 * a control token.
 */
function textTokens({ tokens }: TokenizerMetadata, kinds: readonly TokenKind[]): ReadonlyMap<string, number> {
  const ids = new Map<string, number>();
  tokens.forEach((text, token) => {
    if (kinds[token] !== "control" && kinds[token] !== "shown-control") ids.set(text, token);
  });
  return ids;
}

function known(token: number, { tokens }: TokenizerMetadata): number | null {
  return token < tokens.length ? token : null;
}

/** Returns an encoder that treats white space as a separator without tokens. */
function withoutSpaces(encoder: Encoder, lowersCase: boolean): Encoder {
  const lower = singleCharacters((char) => char.toLowerCase());
  const pattern = /[^\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;
  return (text, output) => {
    const lowered = lowersCase ? text.replace(/[A-Z]|[^\0-\x7f]/gu, lower) : text;
    for (const [segment] of lowered.matchAll(pattern)) encoder(segment, output);
  };
}

function refuse(what: string, found: string, supported: readonly string[]): never {
  throw new ServerError(
    "model_file_invalid",
    `the model's ${what} is ${JSON.stringify(found)}, which is not supported; supported are ${supported.join(", ")}`,
  );
}
