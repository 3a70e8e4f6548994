// Token logprobs as JSON, in the format of OpenAI's protocols. Hot path: a stream with logprobs writes one entry per token.
import { z } from "zod";
import type { AgentEvent } from "../../../actors/api/agent/agents.ts";
import { type LogprobList, type LogprobRecords, recordHead, recordLength } from "../../../engines/logprobs.ts";
import type { ShownTokens } from "../../../engines/text/tokenizer/token-texts.ts";
import { arrayFragments, PIECE_LENGTH, writtenLater } from "./json-pieces.ts";

const alternativeSchema = z.strictObject({
  token: z.string(),
  logprob: z.number().meta({ description: "-9999 if the probability is 0." }),
  bytes: z
    .array(z.int().min(0).max(255))
    .meta({ description: "UTF-8 bytes; a token may contain part of a character." }),
});

export const tokenLogprobSchema = alternativeSchema.extend({ top_logprobs: z.array(alternativeSchema) });

export type WireTokenLogprob = z.output<typeof tokenLogprobSchema>;

/** Returns a log probability for JSON. JSON has no infinity, so -9999 replaces it, as in OpenAI's API. */
export function wireLogprob(logprob: number): number {
  return Number.isFinite(logprob) ? logprob : -9999;
}

const charactersPerFloat = 40;

/** Estimated characters of the records as JSON. */
export function jsonLength({ floats }: LogprobRecords): number {
  return floats.length * charactersPerFloat;
}

/** Checks whether the logprobs of a batch are too long to be serialised at once. */
export function hasLongLogprobs(events: readonly AgentEvent[]): boolean {
  let length = 0;
  for (const event of events) if (event.type === "text" && event.logprobs) length += jsonLength(event.logprobs);
  return length > PIECE_LENGTH;
}

/** Returns a lazy list of tokens for jsonPieces. Tokens added to `list` later are not included. */
export function wireTokenLogprobs(tokens: TokenJson, list: LogprobList): WireTokenLogprob[] {
  const blocks = list.blocks();
  return writtenLater(() => arrayFragments(tokens.each(blocks)));
}

/** Number of serialised tokens in the cache, a power of two. A text has a few thousand distinct tokens. */
const keptTokens = 2 ** 12;

/** Serialiser of the tokens of one model. */
export class TokenJson {
  static readonly #known = new WeakMap<ShownTokens, TokenJson>();
  readonly #texts: ShownTokens;
  /**
   * Cache of serialised tokens, indexed by the low bits of the token id. An entry consists of the token id, the JSON text
   * before the logprob, and the JSON text after it.
   */
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

  /** Returns the JSON of the token whose record begins at `at`, with its alternatives. */
  token(floats: Float32Array, at: number): string {
    const end = at + recordLength(floats, at);
    let top = "";
    for (let pair = at + recordHead; pair < end; pair += 2) {
      top += top === "" ? this.#pair(floats, pair) : `},${this.#pair(floats, pair)}`;
    }
    return `${this.#pair(floats, at)},"top_logprobs":[${top}${top === "" ? "]}" : "}]}"}`;
  }

  /** Yields the JSON of every token in the blocks. */
  *each(blocks: Iterable<Float32Array>): Generator<string> {
    for (const floats of blocks) {
      for (let at = 0; at < floats.length; at += recordLength(floats, at)) yield this.token(floats, at);
    }
  }

  /** Returns the JSON array of a short list of tokens. */
  list({ floats }: LogprobRecords): string {
    let tokens = "";
    for (let at = 0; at < floats.length; at += recordLength(floats, at)) {
      tokens += at === 0 ? this.token(floats, at) : `,${this.token(floats, at)}`;
    }
    return `[${tokens}]`;
  }

  /** Returns the JSON of a token and its logprob, which are adjacent in `floats`. Omits the closing brace. */
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
