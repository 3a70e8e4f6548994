// Logprobs of tokens as JSON, as OpenAI's protocols have them. Hot path where they are asked for: a stream writes one a token.
import { z } from "zod";
import type { GenerateEvent } from "../../../engines/generation.ts";
import { type LogprobList, type LogprobRecords, recordHead, recordLength } from "../../../engines/logprobs.ts";
import type { ShownTokens } from "../../../engines/text/tokenizer/token-texts.ts";
import { arrayFragments, PIECE_LENGTH, writtenLater } from "./json-pieces.ts";

const alternativeSchema = z.strictObject({
  token: z.string(),
  logprob: z.number().meta({ description: "-9999 for never" }),
  bytes: z.array(z.int().min(0).max(255)).meta({ description: "UTF-8; a token may hold part of a character" }),
});

export const tokenLogprobSchema = alternativeSchema.extend({ top_logprobs: z.array(alternativeSchema) });

export type WireTokenLogprob = z.output<typeof tokenLogprobSchema>;

/** A log probability as JSON can carry it: OpenAI writes -9999 for "never". */
export function wireLogprob(logprob: number): number {
  return Number.isFinite(logprob) ? logprob : -9999;
}

const charactersPerFloat = 40;

/** About how many characters of JSON text records come to. */
export function jsonLength({ floats }: LogprobRecords): number {
  return floats.length * charactersPerFloat;
}

/** Whether the logprobs of a batch of events are too long to be written at once. */
export function hasLongLogprobs(events: readonly GenerateEvent[]): boolean {
  let length = 0;
  for (const event of events) if (event.type === "text" && event.logprobs) length += jsonLength(event.logprobs);
  return length > PIECE_LENGTH;
}

/** The list of some tokens, in its place in a value that jsonPieces writes. Tokens added later are not in it. */
export function wireTokenLogprobs(tokens: TokenJson, list: LogprobList): WireTokenLogprob[] {
  const blocks = list.blocks();
  return writtenLater(() => arrayFragments(tokens.each(blocks)));
}

/** Tokens that are kept as they are written; those of one text are a few thousand. A power of two. */
const keptTokens = 2 ** 12;

/** Writes the tokens of one model. */
export class TokenJson {
  static readonly #known = new WeakMap<ShownTokens, TokenJson>();
  readonly #texts: ShownTokens;
  /** By the last bits of their ids, the tokens written last: the id, and what comes before and after the logprob. */
  readonly #ids = new Int32Array(keptTokens).fill(-1);
  readonly #before: string[] = new Array(keptTokens).fill("");
  readonly #after: string[] = new Array(keptTokens).fill("");

  private constructor(texts: ShownTokens) {
    this.#texts = texts;
  }

  static of(texts: ShownTokens): TokenJson {
    let json = TokenJson.#known.get(texts);
    if (json === undefined) {
      json = new TokenJson(texts);
      TokenJson.#known.set(texts, json);
    }
    return json;
  }

  get texts(): ShownTokens {
    return this.#texts;
  }

  /** The token whose record lies at `at`, with its alternatives. */
  token(floats: Float32Array, at: number): string {
    const end = at + recordLength(floats, at);
    let top = "";
    for (let pair = at + recordHead; pair < end; pair += 2) {
      top += top === "" ? this.#pair(floats, pair) : `},${this.#pair(floats, pair)}`;
    }
    return `${this.#pair(floats, at)},"top_logprobs":[${top}${top === "" ? "]}" : "}]}"}`;
  }

  /** Each token of arrays of records. */
  *each(blocks: Iterable<Float32Array>): Generator<string> {
    for (const floats of blocks) {
      for (let at = 0; at < floats.length; at += recordLength(floats, at)) yield this.token(floats, at);
    }
  }

  /** The list of a few tokens. */
  list({ floats }: LogprobRecords): string {
    let tokens = "";
    for (let at = 0; at < floats.length; at += recordLength(floats, at)) {
      tokens += at === 0 ? this.token(floats, at) : `,${this.token(floats, at)}`;
    }
    return `[${tokens}]`;
  }

  /** A token and its logprob, which lie behind one another; without the bracket that closes it. */
  #pair(floats: Float32Array, at: number): string {
    const slot = this.#slot(floats[at] as number);
    return `${this.#before[slot]}${wireLogprob(floats[at + 1] as number)}${this.#after[slot]}`;
  }

  #slot(token: number): number {
    const slot = token & (keptTokens - 1);
    if (this.#ids[slot] === token) return slot;
    this.#ids[slot] = token;
    this.#before[slot] = `{"token":${JSON.stringify(this.#texts.tokenText(token))},"logprob":`;
    this.#after[slot] = `,"bytes":[${this.#texts.piece(token).join(",")}]`;
    return slot;
  }
}
