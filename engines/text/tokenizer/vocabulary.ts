// Vocabulary: converts text to tokens and tokens to text in TypeScript, built from the model file's metadata. Native
// code in the server process must not see user text, because llama.cpp's tokenizer crashes on long runs of one
// character. When a model is loaded, both tokenizers encode the texts in `vocabularyProbes`, and the tokens must be
// equal, except for a vocabulary with the exact rules of a tokenizer.json.
import { ServerError } from "../../../runtime/errors.ts";
import type { TokenizerMetadata } from "../../files/gguf/metadata.ts";
import type { ExactRules } from "../../files/tokenizer-rules.ts";
import type { Encoder } from "./encoding/encoders.ts";
import { planEncoding } from "./encoding/encoding-plan.ts";
import { FixedTokens, type Swallowing } from "./fixed-tokens.ts";
import { longestPiece, PieceTable, piecesOf } from "./pieces.ts";
import { type InfillTokens, infillTokens, type TokenKind, tokenKinds } from "./token-kinds.ts";
import type { TabledVocabulary } from "./token-texts.ts";

/**
 * A rendered chat template. `marker` is a character that was inserted into every control token name in user text, so
 * that the name is not recognized. The marker occurs nowhere else.
 */
export interface PromptText {
  readonly text: string;
  readonly marker: string;
}

export interface Vocabulary extends TabledVocabulary {
  readonly bosToken: number | null;
  readonly eosToken: number | null;
  /** Token that encodeWhole() and encodePair() put at the end of their result; null: none. */
  readonly closingToken: number | null;
  /** Tokens of an infill prompt; null: the model cannot fill gaps in a text. */
  readonly infillTokens: InfillTokens | null;
  /** Text tokens that encoding produces wherever their text occurs. */
  readonly userDefinedTokens: readonly number[];
  /**
   * Maximum number of bytes per token: a prompt of B bytes has at least B / longestPieceBytes tokens. So a prompt that
   * is too long can be rejected before encoding. If a token may represent text of any length (unknown words, runs of
   * spaces), the value is an assumed limit that meaningful text does not reach.
   */
  readonly longestPieceBytes: number;
  /** Whether texts are encoded by the exact rules of a tokenizer.json, which llama.cpp's tokenizer does not know. */
  readonly isExact: boolean;
  /** Encodes plain text. Names of control tokens are treated as ordinary characters. */
  encode(text: string): Int32Array;
  /** Like `encode`, but adds the BOS token in front if the model requires it. */
  encodeCompletion(text: string): Int32Array;
  /** Like `encodeCompletion` or `encodePrompt`, but adds the closing token at the end. Used for embeddings. */
  encodeWhole(text: string | PromptText): Int32Array;
  /** Returns a prompt for which the model generates the text between `before` and `after`. */
  encodeInfill(tokens: InfillTokens, before: string, after: string): Int32Array;
  /**
   * Encodes two texts as one sequence, with a separator between them, for an encoder that scores the pair. Requires
   * `closingToken`.
   */
  encodePair(first: string, second: string): Int32Array;
  /**
   * Encodes a rendered template. Names of control tokens become these tokens, except in user text. `addsBos` (default:
   * true): add the BOS token if the model requires it and it is missing.
   */
  encodePrompt(prompt: PromptText, addsBos?: boolean): Int32Array;
  /** Returns the tokens whose bytes contain the bytes of `text`. */
  tokensContaining(text: string): Int32Array;
  /** Returns the names of the control tokens that occur in `text`. */
  controlNamesIn(text: string): string[];
}

/** Short texts on which tokenizers often differ. Two tokenizers that agree on all of them are treated as equal. */
export const vocabularyProbes: readonly string[] = [
  "Hello, world! How are you?",
  " leading and trailing  ",
  "a\tb\t\tc\n\n\nd\r\n e \n\n  f",
  "I'm, you're, we'll, it's, they'd've; DON'T CAN'T I'LL",
  "1 12 123 1234 12345678 3.14159 ½ ² Ⅷ १२३",
  'for (let i = 0; i < n; i++) {\n    x[i] += f(x, "y") ** 2;\n}\n',
  "Ça coûte déjà très cher à Zürich; naïve cafe\u0301",
  "你好，世界！こんにちは カタカナ 안녕하세요",
  "Привет мир, γειά σου, مرحبا بالعالم, שלום, สวัสดี, नमस्ते",
  "😀 👨‍👩‍👧 🏳️‍🌈 ❤️ \u200b\u00a0\u3000\ufeff",
  "camelCaseWord SCREAMING_SNAKE kebab-case https://example.com/a?b=c#d",
  "<|im_end|></s><unk> <b>bold</b> $#@!%^&*()[]{}|\\/~`",
];

export function createVocabulary(tokenizer: TokenizerMetadata): Vocabulary {
  return new GgufVocabulary(tokenizer);
}

/** Tokens that never absorb (strip) the white space after them, even if other control tokens do. */
const neverSwallowing = new Set(["<unk>", "<s>", "<|endoftext|>"]);

function swallowingOf({ stripsAfterControl, strippedBefore = null }: TokenizerMetadata): Swallowing {
  return {
    before: (text) => text === strippedBefore,
    after: (text) => stripsAfterControl && !neverSwallowing.has(text),
  };
}

/** Returns the white space rules of added tokens: `lstrip` absorbs white space before a token, `rstrip` after it. */
function strippingOf({ tokens }: TokenizerMetadata, { added }: ExactRules): Swallowing {
  const namesWith = (rule: string) =>
    new Set(added.filter(({ rules }) => rules.includes(rule)).map(({ id }) => tokens[id]));
  const [before, after] = [namesWith("lstrip"), namesWith("rstrip")];
  return { before: (text) => before.has(text), after: (text) => after.has(text) };
}

/**
 * `longestPieceBytes` of a vocabulary in which a token may represent text of any length. With a larger value, longer
 * texts would be encoded before they are rejected as too long. Encoding 10 MB of spaces takes seconds and a gigabyte
 * of memory.
 */
const lossyTokenBytes = 1024;

/**
 * Returns the tokens between two texts. RoBERTa's vocabularies close the first text and add a separator; BERT's
 * vocabularies use one token for both purposes.
 */
function separatorsOf({ model, addSeparator, separatorId }: TokenizerMetadata, closing: number | null): number[] {
  if (closing === null) return [];
  return (addSeparator ?? true) && model !== "bert" ? [closing, separatorId ?? closing] : [closing];
}

const loneSurrogate = /\p{Surrogate}/gu;

class GgufVocabulary implements Vocabulary {
  readonly size: number;
  readonly bosToken: number | null;
  readonly eosToken: number | null;
  readonly closingToken: number | null;
  readonly controlTokens: readonly number[];
  readonly infillTokens: InfillTokens | null;
  readonly userDefinedTokens: readonly number[];
  readonly longestPieceBytes: number;
  readonly isExact: boolean;
  readonly addsSpacePrefix: boolean;
  /** Tokens that encodePair() inserts between the two texts. */
  private readonly separators: readonly number[];
  private readonly names: readonly string[];
  private readonly kinds: readonly TokenKind[];
  private readonly addsBos: boolean;
  private readonly encoder: Encoder;
  private readonly controls: FixedTokens;
  private readonly userDefined: FixedTokens;
  readonly pieces: PieceTable;

  constructor(tokenizer: TokenizerMetadata) {
    this.names = tokenizer.tokens;
    this.size = tokenizer.tokens.length;
    this.kinds = tokenKinds(tokenizer);
    const plan = planEncoding(tokenizer, this.kinds);
    this.isExact = plan.rules !== undefined;
    this.bosToken = plan.bos;
    this.eosToken = tokenizer.eosId;
    this.addsBos = plan.addsBos;
    this.closingToken = plan.closing;
    this.infillTokens = infillTokens(tokenizer);
    this.separators = separatorsOf(tokenizer, plan.closing);
    this.addsSpacePrefix = plan.addsSpacePrefix;
    this.encoder = plan.encoder;
    this.controlTokens = this.kinds.flatMap((_, token) => (this.isControl(token) ? [token] : []));
    // A marker inside the name of a control token keeps the tokenizer from reading this token in a text of the user. A name of
    // one character has no inside, and needs no marker: a text never becomes such a token.
    const breakable = this.controlTokens.filter((token) => this.name(token).length > 1);
    const swallowing = plan.rules ? strippingOf(tokenizer, plan.rules) : swallowingOf(tokenizer);
    this.controls = new FixedTokens(
      breakable.map((token) => [this.name(token), token] as const),
      swallowing,
    );
    this.userDefinedTokens = this.kinds.flatMap((kind, token) => (kind === "user-defined" ? [token] : []));
    // The exact encoder finds these tokens itself.
    const searched = plan.rules ? [] : this.userDefinedTokens;
    const userDefined = searched.map((token) => [this.name(token), token] as const);
    this.userDefined = new FixedTokens(userDefined, swallowing);
    this.pieces = new PieceTable(piecesOf(this.names, this.kinds, plan.spelling));
    const longest = longestPiece(this.pieces, this.names);
    this.longestPieceBytes = plan.isLossy ? Math.max(lossyTokenBytes, longest) : longest;
  }

  encode(text: string): Int32Array {
    const output: number[] = [];
    this.append(text.replace(loneSurrogate, "\ufffd"), output);
    return Int32Array.from(output);
  }

  encodeCompletion(text: string): Int32Array {
    const output: number[] = [];
    if (this.addsBos && this.bosToken !== null) output.push(this.bosToken);
    this.append(text.replace(loneSurrogate, "\ufffd"), output);
    return Int32Array.from(output);
  }

  encodeWhole(text: string | PromptText): Int32Array {
    const tokens = typeof text === "string" ? this.encodeCompletion(text) : this.encodePrompt(text);
    if (this.closingToken === null) return tokens;
    const whole = new Int32Array(tokens.length + 1);
    whole.set(tokens);
    whole[tokens.length] = this.closingToken;
    return whole;
  }

  encodeInfill({ prefix, suffix, middle }: InfillTokens, before: string, after: string): Int32Array {
    const bos = this.addsBos && this.bosToken !== null ? [this.bosToken] : [];
    return Int32Array.from([...bos, prefix, ...this.encode(before), suffix, ...this.encode(after), middle]);
  }

  encodePair(first: string, second: string): Int32Array {
    const head = this.encodeCompletion(first);
    const tail = this.encode(second);
    const closing = this.closingToken === null ? [] : [this.closingToken];
    return Int32Array.from([...head, ...this.separators, ...tail, ...closing]);
  }

  encodePrompt(prompt: PromptText, addsBos = true): Int32Array {
    const output: number[] = [];
    const fragments = this.controls.split(prompt.text.replace(loneSurrogate, "\ufffd"));
    if (addsBos && this.addsBos && this.bosToken !== null && fragments[0] !== this.bosToken) output.push(this.bosToken);
    for (const [at, fragment] of fragments.entries()) {
      if (typeof fragment === "number") output.push(fragment);
      else this.append(fragment.replaceAll(prompt.marker, ""), output, at === 0);
    }
    return Int32Array.from(output);
  }

  piece(token: number): Uint8Array {
    return this.pieces.piece(token);
  }

  pieceText(token: number): string | null {
    return this.pieces.text(token);
  }

  tokenText(token: number): string {
    if (this.isControl(token)) return this.name(token);
    return this.pieces.text(token) ?? this.pieces.piece(token).toString("utf8");
  }

  isControl(token: number): boolean {
    const kind = this.kinds[token];
    return kind === "control" || kind === "shown-control";
  }

  tokensContaining(text: string): Int32Array {
    return this.pieces.containing(text);
  }

  controlNamesIn(text: string): string[] {
    return this.controls.presentIn(text).map(([name]) => name);
  }

  private name(token: number): string {
    return this.names[token] ?? "";
  }

  /** Appends the tokens of text without control tokens. The text must follow a control token or be at the start. */
  private append(text: string, output: number[], isFirst = true): void {
    for (const fragment of this.userDefined.split(text)) {
      if (typeof fragment === "number") output.push(fragment);
      else this.encodePlain(fragment, output, isFirst);
    }
  }

  private encodePlain(text: string, output: number[], isFirst: boolean): void {
    try {
      this.encoder(text, output, isFirst);
    } catch (error) {
      // JavaScript's regular expressions fail on a single word of tens of megabytes.
      if (!(error instanceof RangeError)) throw error;
      throw new ServerError(
        "invalid_value",
        `the text has a run of characters that is too long to tokenize (${text.length} characters); split it up`,
      );
    }
  }
}
