// Owns a model's vocabulary on the agents side: text to tokens and tokens to text, in plain TypeScript built from the model
// file's metadata. Native code must not see user text in the server process: llama.cpp's tokenizer crashes on long runs of
// one character. The model's own process compares both on `vocabularyProbes` when it loads.
import { ServerError } from "../../runtime/errors.ts";
import type { TokenizerMetadata } from "../gguf/metadata.ts";
import { readSpelledBytes } from "./byte-alphabet.ts";
import { bytePairEncoder, type Encoder, sentencePieceEncoder, spaceSymbol, wordPieceEncoder } from "./encoders.ts";
import { FixedTokens } from "./fixed-tokens.ts";
import { findPreTokenizer, preTokenizerNames } from "./pre-tokenizers.ts";
import { byteOfToken, type TokenKind, tokenKinds } from "./token-kinds.ts";

/** A rendered chat template. Where user text spells a control token it is broken by `marker`, which occurs nowhere else. */
export interface PromptText {
  readonly text: string;
  readonly marker: string;
}

export interface Vocabulary {
  readonly size: number;
  readonly bosToken: number | null;
  readonly eosToken: number | null;
  /** Tokens that are structure, not text. */
  readonly controlTokens: readonly number[];
  /** A prompt of B bytes is at least B / longestPieceBytes tokens: refuse by bytes before encoding. */
  readonly longestPieceBytes: number;
  /** Encoding puts a space before text that follows a control token, so decoding takes it off. */
  readonly addsSpacePrefix: boolean;
  /** Tokens of plain text: control tokens' names are ordinary characters. */
  encode(text: string): Int32Array;
  /** As encode, with the BOS token in front if the model wants one. */
  encodeCompletion(text: string): Int32Array;
  /** Tokens of a rendered template: control tokens count, except in user text. Adds BOS if wanted and not there. */
  encodePrompt(prompt: PromptText): Int32Array;
  /** The bytes a token stands for in output: none for a control token. A view, not to be changed. */
  piece(token: number): Uint8Array;
  /** The same as text, or null if the bytes are not whole characters. */
  pieceText(token: number): string | null;
  /** A token as logprobs show it: control tokens by name, broken characters as U+FFFD. */
  tokenText(token: number): string;
  isControl(token: number): boolean;
  /** Tokens whose bytes contain those of `text`. */
  tokensContaining(text: string): Int32Array;
  /** Names of the control tokens that `text` spells. */
  controlNamesIn(text: string): string[];
}

/** Short texts on which tokenizers tend to differ; equal tokens on all of them means equal tokenizers. */
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

const loneSurrogate = /\p{Surrogate}/gu;

class GgufVocabulary implements Vocabulary {
  readonly size: number;
  readonly bosToken: number | null;
  readonly eosToken: number | null;
  readonly controlTokens: readonly number[];
  readonly longestPieceBytes: number;
  readonly addsSpacePrefix: boolean;
  private readonly names: readonly string[];
  private readonly kinds: readonly TokenKind[];
  private readonly addsBos: boolean;
  private readonly encoder: Encoder;
  private readonly controls: FixedTokens;
  private readonly userDefined: FixedTokens;
  /** Token t's piece is pieceBytes[pieceEnds[t - 1] .. pieceEnds[t]). */
  private readonly pieceBytes: Buffer;
  private readonly pieceEnds: Int32Array;
  private readonly texts: (string | null | undefined)[] = [];

  constructor(tokenizer: TokenizerMetadata) {
    this.names = tokenizer.tokens;
    this.size = tokenizer.tokens.length;
    this.kinds = tokenKinds(tokenizer);
    const plan = planEncoding(tokenizer, this.kinds);
    this.bosToken = tokenizer.bosId ?? plan.defaultBos;
    this.eosToken = tokenizer.eosId;
    this.addsBos = plan.forcesBos || (tokenizer.addBos ?? plan.addsBos);
    this.addsSpacePrefix = plan.isSentencePiece && (tokenizer.addSpacePrefix ?? true);
    this.encoder = plan.encoder;
    this.controlTokens = this.kinds.flatMap((_, token) => (this.isControl(token) ? [token] : []));
    this.controls = new FixedTokens(this.controlTokens.map((token) => [this.name(token), token] as const));
    this.userDefined = new FixedTokens(
      this.kinds.flatMap((kind, token) => (kind === "user-defined" ? [[this.name(token), token] as const] : [])),
    );
    const pieces = this.names.map((name, token) => pieceOf(name, this.kinds[token], plan.spelling));
    this.pieceBytes = Buffer.concat(pieces);
    this.pieceEnds = endsOf(pieces);
    this.longestPieceBytes = longestBytes(pieces, this.names);
  }

  encode(text: string): Int32Array {
    const output: number[] = [];
    this.append(text.replace(loneSurrogate, "\ufffd"), true, output);
    return Int32Array.from(output);
  }

  encodeCompletion(text: string): Int32Array {
    const output: number[] = [];
    if (this.addsBos && this.bosToken !== null) output.push(this.bosToken);
    this.append(text.replace(loneSurrogate, "\ufffd"), true, output);
    return Int32Array.from(output);
  }

  encodePrompt(prompt: PromptText): Int32Array {
    const output: number[] = [];
    const fragments = this.controls.split(prompt.text.replace(loneSurrogate, "\ufffd"));
    if (this.addsBos && this.bosToken !== null && fragments[0] !== this.bosToken) output.push(this.bosToken);
    let followsControl = true;
    for (const fragment of fragments) {
      if (typeof fragment === "number") output.push(fragment);
      else this.append(fragment.replaceAll(prompt.marker, ""), followsControl, output);
      followsControl = typeof fragment === "number";
    }
    return Int32Array.from(output);
  }

  piece(token: number): Uint8Array {
    return this.pieceBytes.subarray(token === 0 ? 0 : this.pieceEnds[token - 1], this.pieceEnds[token]);
  }

  pieceText(token: number): string | null {
    const known = this.texts[token];
    if (known !== undefined) return known;
    const piece = this.piece(token);
    const text = Buffer.from(piece.buffer, piece.byteOffset, piece.length).toString("utf8");
    const isWhole = Buffer.byteLength(text, "utf8") === piece.length && !text.includes("\ufffd");
    this.texts[token] = isWhole ? text : null;
    return this.texts[token] ?? null;
  }

  tokenText(token: number): string {
    if (this.isControl(token)) return this.name(token);
    return this.pieceText(token) ?? Buffer.from(this.piece(token)).toString("utf8");
  }

  isControl(token: number): boolean {
    const kind = this.kinds[token];
    return kind === "control" || kind === "shown-control";
  }

  tokensContaining(text: string): Int32Array {
    const wanted = Buffer.from(text, "utf8");
    const tokens: number[] = [];
    if (wanted.length === 0) return new Int32Array(0);
    let token = 0;
    for (let at = this.pieceBytes.indexOf(wanted); at >= 0; ) {
      while ((this.pieceEnds[token] as number) <= at) token++;
      const end = this.pieceEnds[token] as number;
      const isInside = at + wanted.length <= end;
      if (isInside) tokens.push(token);
      at = this.pieceBytes.indexOf(wanted, isInside ? end : at + 1);
    }
    return Int32Array.from(tokens);
  }

  controlNamesIn(text: string): string[] {
    return this.controls.presentIn(text).map(([name]) => name);
  }

  private name(token: number): string {
    return this.names[token] ?? "";
  }

  /** Appends the tokens of text in which no control token counts. */
  private append(text: string, followsControl: boolean, output: number[]): void {
    let wantsSpace = this.addsSpacePrefix && followsControl;
    for (const fragment of this.userDefined.split(text)) {
      if (typeof fragment === "number") output.push(fragment);
      else this.encodePlain(wantsSpace ? ` ${fragment}` : fragment, output);
      wantsSpace = this.addsSpacePrefix && typeof fragment === "number";
    }
  }

  private encodePlain(text: string, output: number[]): void {
    try {
      this.encoder(text, output);
    } catch (error) {
      // The regular expression engine gives up on a single word of tens of megabytes.
      if (!(error instanceof RangeError)) throw error;
      throw new ServerError(
        "invalid_value",
        `the text has a run of characters too long to split into tokens (${text.length} characters)`,
      );
    }
  }
}

type Spelling = "bytes" | "spaces";

interface EncodingPlan {
  readonly encoder: Encoder;
  readonly spelling: Spelling;
  readonly isSentencePiece: boolean;
  readonly addsBos: boolean;
  /** Whatever the file says. */
  readonly forcesBos: boolean;
  readonly defaultBos: number | null;
}

function planEncoding(tokenizer: TokenizerMetadata, kinds: readonly TokenKind[]): EncodingPlan {
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
  };
}

function refuse(what: string, found: string, known: readonly string[]): never {
  throw new ServerError(
    "model_file_invalid",
    `the model's ${what} is ${JSON.stringify(found)}, which is not supported; supported are ${known.join(", ")}`,
  );
}

const nothing = Buffer.alloc(0);

function pieceOf(name: string, kind: TokenKind | undefined, spelling: Spelling): Uint8Array {
  if (kind === "user-defined" || kind === "shown-control") return Buffer.from(name, "utf8");
  if (kind === "byte") return Uint8Array.of(byteOfToken(name));
  if (kind !== "normal") return nothing;
  return spelling === "bytes" ? readSpelledBytes(name) : Buffer.from(name.replaceAll(spaceSymbol, " "), "utf8");
}

function endsOf(pieces: readonly Uint8Array[]): Int32Array {
  let end = 0;
  return Int32Array.from(pieces, (piece) => {
    end += piece.length;
    return end;
  });
}

/** Names count too: in a prompt a control token stands for its whole name. */
function longestBytes(pieces: readonly Uint8Array[], names: readonly string[]): number {
  let longest = 1;
  pieces.forEach((piece, token) => {
    longest = Math.max(longest, piece.length, Buffer.byteLength(names[token] ?? "", "utf8"));
  });
  return longest;
}
