// Model metadata: the facts of a GGUF file that are needed before an engine loads it, such as chat templates and
// vocabulary. The text workers use the metadata to convert text to tokens and back. Loads no weights and no native
// code.
import { ServerError } from "../../../runtime/errors.ts";
import {
  type EmbeddingPrompts,
  type MultiVectorRules,
  multiVectorKey,
  parseMultiVector,
  parsePrompts,
  promptsKey,
} from "../embedding-rules.ts";
import { exactMergesKey, exactRulesKey } from "../tokenizer-rules.ts";
import type { GgufValue } from "./cursor.ts";
import { fileTypes } from "./file-types.ts";
import { type GgufHead, type HeadBytes, parseHeadBytes, readHead } from "./reader.ts";

export interface TokenizerMetadata {
  /** Tokenizer algorithm: "gpt2", "llama", "bert" ... */
  readonly model: string;
  /** Pre-tokenizer of a "gpt2" vocabulary. */
  readonly pre: string | null;
  /** Text of each token by token id, as the file stores it. */
  readonly tokens: readonly string[];
  /** Kind of each token (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte), or null = all normal. */
  readonly types: readonly number[] | null;
  readonly scores: readonly number[] | null;
  readonly merges: readonly string[];
  readonly bosId: number | null;
  readonly eosId: number | null;
  readonly eotId: number | null;
  readonly eomId: number | null;
  readonly unknownId: number | null;
  /** Token that ends a text (encoders only). */
  readonly separatorId?: number | null;
  /** Mask token, which stands for a hidden token (masked language models only). */
  readonly maskId?: number | null;
  /** Infill tokens of code models: padding, next repository and next file. */
  readonly infillPadId?: number | null;
  readonly infillRepositoryId?: number | null;
  readonly infillFileId?: number | null;
  /** Tokens before the three parts of an infill prompt: text before the gap, text after it, and the gap. */
  readonly infillPrefixId?: number | null;
  readonly infillSuffixId?: number | null;
  readonly infillMiddleId?: number | null;
  /** Null in `addBos`, `addEos` or `addSpacePrefix` means the default of the tokenizer. */
  readonly addBos: boolean | null;
  readonly addEos: boolean | null;
  /**
   * Whether a separator token follows the end token between two texts; null or absent = the default of the tokenizer.
   */
  readonly addSeparator?: boolean | null;
  readonly addSpacePrefix: boolean | null;
  /**
   * Whether white space after a control token is removed. Determined by the model's name, because the file has no key
   * for it.
   */
  readonly stripsAfterControl: boolean;
  /**
   * Name of the token before which white space is removed; null or absent = none. Determined by the pre-tokenizer, the
   * architecture and the model's name.
   */
  readonly strippedBefore?: string | null;
  /** "t5" vocabularies only: whether a run of spaces counts as one space. */
  readonly removesExtraSpaces?: boolean | null;
  /** "t5" vocabularies only: replacements of characters before encoding, as compiled by SentencePiece. */
  readonly charactersMap?: readonly number[] | null;
  /** "bert" vocabularies only: whether text is lower-cased, and whether accents are stripped; null = yes. */
  readonly lowersCase?: boolean | null;
  readonly stripsAccents?: boolean | null;
  /** Exact rules of the tokenizer (tokenizer-rules.ts) as JSON; null or absent = none. */
  readonly rules?: string | null;
  /** All merges of a vocabulary whose `scores` do not express them exactly; null or absent = the file has none. */
  readonly exactMerges?: readonly string[] | null;
}

export interface ModelMetadata {
  readonly path: string;
  readonly architecture: string;
  readonly name: string | null;
  /** Number type of most weights, for example Q4_K_M; null if the file does not name a known one. */
  readonly weightType: string | null;
  /** Maximum context length that the model was trained for, in tokens. */
  readonly contextLength: number | null;
  /** Chat template sources by name; the unnamed template has the name "default". */
  readonly chatTemplates: ReadonlyMap<string, string>;
  /** Prompts put before inputs to embed; null = the file has none. */
  readonly prompts: EmbeddingPrompts | null;
  /** How a ColBERT model reads its inputs; null = not a ColBERT model. */
  readonly multiVector: MultiVectorRules | null;
  readonly tokenizer: TokenizerMetadata;
}

export const suppressedKey = "tokenizer.ggml.suppress_tokens";
const templateKey = "tokenizer.chat_template";

/** Keys that are needed only to encode text. They hold the longest lists of a file. */
const encodingKeys: ReadonlySet<string> = new Set([
  "tokenizer.ggml.merges",
  "tokenizer.ggml.scores",
  "tokenizer.ggml.precompiled_charsmap",
  exactRulesKey,
  exactMergesKey,
]);

/**
 * Reads a model file's metadata. If `forEncoding` is false, omits the keys that are needed only to encode text. Throws
 * ServerError `model_file_invalid`.
 */
export async function readModelMetadata(path: string, forEncoding = true): Promise<ModelMetadata> {
  const wanted = (key: string) => isWanted(key) && (forEncoding || !encodingKeys.has(key));
  return metadataOf(path, await readHead(path, wanted));
}

/** Reads the ids of the tokens that the model must never generate, such as the marks that end an image in a prompt. */
export async function readSuppressedTokens(path: string): Promise<readonly number[]> {
  const { pairs } = await readHead(path, (key) => key === suppressedKey);
  return new Fields(path, pairs).numbers(suppressedKey, 0) ?? [];
}

/** Like readModelMetadata, but the bytes of the header are already in memory. */
export function parseModelMetadata(head: HeadBytes): ModelMetadata {
  return metadataOf(head.path, parseHeadBytes(head, isWanted));
}

function metadataOf(path: string, { pairs }: GgufHead): ModelMetadata {
  const fields = new Fields(path, pairs);
  const architecture = fields.required("general.architecture", fields.string("general.architecture"));
  return {
    path,
    architecture,
    name: fields.string("general.name"),
    weightType: fileTypes.get(fields.number("general.file_type") ?? -1) ?? null,
    contextLength: fields.number(`${architecture}.context_length`),
    chatTemplates: fields.templates(),
    prompts: fields.parsed(promptsKey, parsePrompts),
    multiVector: fields.parsed(multiVectorKey, parseMultiVector),
    tokenizer: readTokenizer(fields, architecture),
  };
}

function isWanted(key: string): boolean {
  return (
    key.startsWith(templateKey) ||
    key.startsWith("tokenizer.ggml.") ||
    key === exactRulesKey ||
    key === exactMergesKey ||
    key === promptsKey ||
    key === multiVectorKey ||
    key.startsWith("general.") ||
    key.endsWith(".context_length")
  );
}

function readTokenizer(fields: Fields, architecture: string): TokenizerMetadata {
  const tokens = fields.required("tokenizer.ggml.tokens", fields.strings("tokenizer.ggml.tokens"));
  if (tokens.length === 0) throw fields.invalid("has no token in tokenizer.ggml.tokens; convert the model again");
  const pre = fields.string("tokenizer.ggml.pre");
  const name = fields.string("general.name") ?? "";
  return {
    model: fields.required("tokenizer.ggml.model", fields.string("tokenizer.ggml.model")),
    pre,
    tokens,
    types: fields.numbers("tokenizer.ggml.token_type", tokens.length),
    scores: fields.numbers("tokenizer.ggml.scores", tokens.length),
    merges: fields.strings("tokenizer.ggml.merges") ?? [],
    bosId: fields.token("bos_token_id", tokens.length),
    eosId: fields.token("eos_token_id", tokens.length),
    eotId: fields.token("eot_token_id", tokens.length),
    eomId: fields.token("eom_token_id", tokens.length),
    unknownId: fields.token("unknown_token_id", tokens.length),
    // The GGUF format spells this key "seperator".
    separatorId: fields.token("seperator_token_id", tokens.length),
    maskId: fields.token("mask_token_id", tokens.length),
    infillPadId: fields.token("fim_pad_token_id", tokens.length),
    infillRepositoryId: fields.token("fim_rep_token_id", tokens.length),
    infillFileId: fields.token("fim_sep_token_id", tokens.length),
    // The second name of each key occurs in older files.
    infillPrefixId: fields.token("fim_pre_token_id", tokens.length) ?? fields.token("prefix_token_id", tokens.length),
    infillSuffixId: fields.token("fim_suf_token_id", tokens.length) ?? fields.token("suffix_token_id", tokens.length),
    infillMiddleId: fields.token("fim_mid_token_id", tokens.length) ?? fields.token("middle_token_id", tokens.length),
    addBos: fields.boolean("tokenizer.ggml.add_bos_token"),
    addEos: fields.boolean("tokenizer.ggml.add_eos_token"),
    addSeparator: fields.boolean("tokenizer.ggml.add_sep_token"),
    addSpacePrefix: fields.boolean("tokenizer.ggml.add_space_prefix"),
    stripsAfterControl: /phi-?3/i.test(name),
    strippedBefore: strippedBefore(pre ?? "", architecture, name),
    removesExtraSpaces: fields.boolean("tokenizer.ggml.remove_extra_whitespaces"),
    charactersMap: fields.numbers("tokenizer.ggml.precompiled_charsmap", 0),
    lowersCase: fields.boolean("tokenizer.ggml.normalizer.lowercase"),
    stripsAccents: fields.boolean("tokenizer.ggml.normalizer.strip_accents"),
    rules: fields.string(exactRulesKey),
    exactMerges: fields.strings(exactMergesKey),
  };
}

function strippedBefore(pre: string, architecture: string, name: string): string | null {
  if (/jina-v2-(?:de|es|code)/.test(pre) || /nomic-bert-moe|jina-bert-v3/.test(architecture)) return "<mask>";
  return /modern-bert/i.test(name) && !/phi-?3/i.test(name) ? "[MASK]" : null;
}

/**
 * Typed look-ups by key. They return null for an absent key, and throw `model_file_invalid` for a value of the wrong
 * type.
 */
class Fields {
  private readonly path: string;
  private readonly pairs: ReadonlyMap<string, GgufValue>;

  constructor(path: string, pairs: ReadonlyMap<string, GgufValue>) {
    this.path = path;
    this.pairs = pairs;
  }

  required<T>(key: string, value: T | null): T {
    if (value !== null) return value;
    throw this.invalid(`has no ${key}; a language model file needs it`);
  }

  string(key: string): string | null {
    return this.look(key, "a string", (value) => typeof value === "string") as string | null;
  }

  /** Reads a string in troupe's own format and parses it. */
  parsed<T>(key: string, parse: (path: string, text: string) => T): T | null {
    const text = this.string(key);
    return text === null ? null : parse(this.path, text);
  }

  number(key: string): number | null {
    return this.look(key, "a number", (value) => typeof value === "number") as number | null;
  }

  boolean(key: string): boolean | null {
    return this.look(key, "true or false", (value) => typeof value === "boolean") as boolean | null;
  }

  strings(key: string): readonly string[] | null {
    return this.list(key, "string") as readonly string[] | null;
  }

  numbers(key: string, minimumLength: number): readonly number[] | null {
    const numbers = this.list(key, "number") as readonly number[] | null;
    if (numbers !== null && numbers.length < minimumLength) {
      throw this.invalid(`has ${numbers.length} values in ${key} for ${minimumLength} tokens`);
    }
    return numbers;
  }

  /** Returns a token id; an id outside the vocabulary counts as absent, as in llama.cpp. */
  token(name: string, tokenCount: number): number | null {
    const token = this.number(`tokenizer.ggml.${name}`);
    return token !== null && Number.isInteger(token) && token >= 0 && token < tokenCount ? token : null;
  }

  templates(): Map<string, string> {
    const templates = new Map<string, string>();
    for (const [key, value] of this.pairs) {
      if (!key.startsWith(templateKey) || typeof value !== "string") continue;
      templates.set(key === templateKey ? "default" : key.slice(templateKey.length + 1), value);
    }
    return templates;
  }

  private list(key: string, elementType: "string" | "number"): readonly GgufValue[] | null {
    const isList = (value: GgufValue) =>
      Array.isArray(value) && (value.length === 0 || typeof value[0] === elementType);
    return this.look(key, `a list of ${elementType}s`, isList) as readonly GgufValue[] | null;
  }

  private look(key: string, expected: string, fits: (value: GgufValue) => boolean): GgufValue | null {
    const value = this.pairs.get(key);
    if (value === undefined) return null;
    if (fits(value)) return value;
    throw this.invalid(`has a ${typeof value} in ${key}; expected ${expected}`);
  }

  invalid(problem: string): ServerError {
    return new ServerError("model_file_invalid", `${this.path} ${problem}`);
  }
}
