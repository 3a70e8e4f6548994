// Legacy logprobs of text completions: four parallel lists with one entry per token.
import { isUtf8 } from "node:buffer";
import { type LogprobList, type LogprobRecords, recordHead, recordLength } from "../../engines/logprobs.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import type { Answer } from "../shared/answer/answer.ts";
import { arrayFragments, writtenLater } from "../shared/answer/json-pieces.ts";
import { wireLogprob } from "../shared/answer/logprobs.ts";
import type { WireLegacyLogprobs } from "./schemas.ts";

/** Which data about tokens a request asks for. */
export interface ShownOfTokens {
  readonly logprobs: boolean;
  readonly ids: boolean;
  /** Whether token ids replace token texts in the logprobs (`token_id:123`). */
  readonly namesAsIds: boolean;
}

/** Returns token texts in which the name of each token is its id, as in vLLM. */
export function namedByIds(texts: ShownTokens): ShownTokens {
  return { piece: (token) => texts.piece(token), tokenText: (token) => `token_id:${token}` };
}

/** Returns the token ids in the blocks of logprob records. */
export function tokenIds(blocks: Iterable<Float32Array>): number[] {
  return [...placesIn(blocks, false)].map(({ floats, at }) => floats[at] as number);
}

const noLogprobs: WireLegacyLogprobs = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };

/** Position of a token's logprob record. */
interface TokenPlace {
  readonly floats: Float32Array;
  readonly at: number;
  /** Whether this is the prompt's first token, which has no logprob. */
  readonly isFirst: boolean;
}

/** Serialises the logprobs of all choices. */
export class LegacyLogprobs {
  readonly #prefix: string;
  readonly #prompt: LogprobList;
  readonly #texts: ShownTokens | null;
  /** Offset of the first token in the text, in code points. Computed once for all choices by #offsets. */
  #start: number | null = null;

  /** `prefix`: echoed prompt that precedes the text of each choice. */
  constructor(prefix: string, { prompt, tokens }: Answer, namesAsIds = false) {
    const texts = tokens?.texts ?? null;
    this.#prefix = prefix;
    this.#prompt = prompt;
    this.#texts = texts !== null && namesAsIds ? namedByIds(texts) : texts;
  }

  /** Returns the logprobs of the echoed prompt, followed by the logprobs of a choice. */
  of(choice: LogprobList): WireLegacyLogprobs {
    const texts = this.#texts;
    if (texts === null) return noLogprobs;
    const places = () => this.#places(choice);
    return {
      tokens: writtenLater(() => arrayFragments(tokenTexts(places(), texts))),
      token_logprobs: writtenLater(() => arrayFragments(logprobs(places()))),
      top_logprobs: writtenLater(() => arrayFragments(alternatives(places(), texts))),
      text_offset: writtenLater(() => arrayFragments(this.#offsets(places(), texts))),
    };
  }

  #places(choice: LogprobList): Iterable<TokenPlace> {
    return placesIn([...this.#prompt.blocks(), ...choice.blocks()], this.#prompt.count > 0);
  }

  /**
   * Yields the offset of each token in the text. Offsets of prompt tokens are counted backwards from the end of the prompt,
   * because the prompt that the model saw may be truncated or start with an added space.
   */
  *#offsets(places: Iterable<TokenPlace>, texts: ShownTokens): Generator<string> {
    this.#start ??= characterCount(this.#prefix) - lengthOf(this.#prompt.blocks(), texts);
    let offset = this.#start;
    for (const { floats, at } of places) {
      yield String(Math.max(offset, 0));
      offset += characterStarts(texts.piece(floats[at] as number));
    }
  }
}

/** Serialises the logprobs of one choice of a stream, chunk by chunk. */
export class StreamedLogprobs {
  readonly #texts: ShownTokens;
  #offset: number;

  /** `prefix`: echoed prompt that precedes the text; `prompt`: logprobs of the prompt's tokens, or null. */
  constructor(texts: ShownTokens, prefix: string, prompt: LogprobRecords | null) {
    this.#texts = texts;
    this.#offset = characterCount(prefix) - (prompt === null ? 0 : lengthOf([prompt.floats], texts));
  }

  /**
   * Yields the JSON of the next tokens. `isPrompt`: whether the record list begins with the prompt's first token, which has no
   * logprob.
   */
  *fragments({ floats }: LogprobRecords, isPrompt: boolean): Generator<string> {
    const texts = this.#texts;
    const places = () => placesIn([floats], isPrompt);
    yield '{"tokens":';
    yield* arrayFragments(tokenTexts(places(), texts));
    yield ',"token_logprobs":';
    yield* arrayFragments(logprobs(places()));
    yield ',"top_logprobs":';
    yield* arrayFragments(alternatives(places(), texts));
    yield ',"text_offset":';
    yield* arrayFragments(this.#offsets(places()));
    yield "}";
  }

  *#offsets(places: Iterable<TokenPlace>): Generator<string> {
    for (const { floats, at } of places) {
      yield String(Math.max(this.#offset, 0));
      this.#offset += characterStarts(this.#texts.piece(floats[at] as number));
    }
  }
}

function* placesIn(blocks: Iterable<Float32Array>, startsPrompt: boolean): Generator<TokenPlace> {
  let isFirst = startsPrompt;
  for (const floats of blocks) {
    for (let at = 0; at < floats.length; at += recordLength(floats, at)) {
      yield { floats, at, isFirst };
      isFirst = false;
    }
  }
}

// The functions below yield list entries as JSON.

function* tokenTexts(places: Iterable<TokenPlace>, texts: ShownTokens): Generator<string> {
  for (const { floats, at } of places) yield JSON.stringify(tokenName(floats[at] as number, texts));
}

function* logprobs(places: Iterable<TokenPlace>): Generator<string> {
  for (const { floats, at, isFirst } of places) yield isFirst ? "null" : String(wireLogprob(floats[at + 1] as number));
}

/** Yields one object per token, which maps the chosen token and its alternatives to their logprobs. */
function* alternatives(places: Iterable<TokenPlace>, texts: ShownTokens): Generator<string> {
  for (const { floats, at, isFirst } of places) {
    // Returns the pair of token text and logprob at index `from`.
    const pair = (from: number) =>
      [tokenName(floats[from] as number, texts), wireLogprob(floats[from + 1] as number)] as const;
    const pairs: (readonly [token: string, logprob: number])[] = [];
    for (let from = at + recordHead; from < at + recordLength(floats, at); from += 2) pairs.push(pair(from));
    yield isFirst ? "null" : JSON.stringify(Object.fromEntries([...pairs, pair(at)]));
  }
}

/**
 * Returns the name of a token: its text, or `bytes:\xc3` as in the OpenAI API if it is not valid UTF-8. The texts of such
 * tokens are often equal, and alternatives with equal names would replace each other.
 */
function tokenName(token: number, texts: ShownTokens): string {
  const text = texts.tokenText(token);
  if (!text.includes("\ufffd")) return text;
  const bytes = Buffer.from(texts.piece(token));
  if (isUtf8(bytes)) return text;
  return `bytes:${Array.from(bytes, (byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("")}`;
}

/** Returns the total number of characters of the tokens in the blocks. */
function lengthOf(blocks: Iterable<Float32Array>, texts: ShownTokens): number {
  let length = 0;
  for (const { floats, at } of placesIn(blocks, false)) length += characterStarts(texts.piece(floats[at] as number));
  return length;
}

// Counts the code points that begin in a token, because offsets count code points and a token may hold only part of one. Every
// byte that is not a UTF-8 continuation byte begins a code point.
function characterStarts(bytes: Uint8Array): number {
  let count = 0;
  for (const byte of bytes) if ((byte & 0xc0) !== 0x80) count++;
  return count;
}

/** Returns the number of code points in a text. */
function characterCount(text: string): number {
  let count = text.length;
  for (let i = 1; i < text.length; i++) {
    const isPair = (text.charCodeAt(i) & 0xfc00) === 0xdc00 && (text.charCodeAt(i - 1) & 0xfc00) === 0xd800;
    if (isPair) count--;
  }
  return count;
}
