// Scanner of server-sent events that does little work: it finds line ends and the key before a text, records when texts arrive,
// and parses only lines with a usage or an error. One scanner per response.
import type { EndpointName } from "../target.ts";

/** JSON key before the text of a delta, by endpoint. The key of `chat` also matches the end of `reasoning_content`. */
const textKeys = {
  chat: Buffer.from('content":'),
  completions: Buffer.from('text":'),
  responses: Buffer.from('"delta":'),
  messages: Buffer.from('_delta","text":'),
} as const satisfies Record<StreamingEndpoint, Buffer>;
type StreamingEndpoint = Exclude<EndpointName, "embeddings">;
const usageKey = Buffer.from('"usage":');
const errorKey = Buffer.from('"error":');
const prefix = Buffer.from("data:");
const newline = 10;
const space = 32;
const quote = 34;
const brace = 123;

/** Token counts in the format of OpenAI's completions and chat completions. */
export interface StreamUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
}

/** Token counts in the format of OpenAI's Responses API and Anthropic's Messages API. */
interface NewerUsage {
  readonly input_tokens: number;
  readonly output_tokens: number;
}

interface PlainChunk {
  readonly usage?: StreamUsage | NewerUsage | null;
  /** Field in which some events of the Responses API contain the usage. */
  readonly response?: { readonly usage?: NewerUsage | null };
  readonly error?: { readonly code?: unknown; readonly type?: unknown; readonly message?: unknown } | null;
}

export class EventScanner {
  /** Number of events with a non-empty text. */
  textCount = 0;
  firstTextMs = Number.NaN;
  lastTextMs = Number.NaN;
  usage: StreamUsage | null = null;
  /** Code or message of an error within the stream. */
  error: string | null = null;
  readonly #gapsMs: number[];
  readonly #textKey: Buffer;
  /** Start of a line whose end has not arrived yet. */
  #carry: Buffer | null = null;

  /** Creates a scanner that adds the pauses between texts to `gapsMs`. */
  constructor(gapsMs: number[], endpoint: StreamingEndpoint = "chat") {
    this.#gapsMs = gapsMs;
    this.#textKey = textKeys[endpoint];
  }

  /** Scans `data[from, to)`, which arrived at `nowMs`. */
  scan(data: Buffer, from: number, to: number, nowMs: number): void {
    let start = from;
    for (;;) {
      const found = data.indexOf(newline, start);
      const end = found === -1 || found >= to ? -1 : found;
      if (end === -1) break;
      if (this.#carry === null) this.#line(data, start, end, nowMs);
      else {
        const line = Buffer.concat([this.#carry, data.subarray(start, end)]);
        this.#carry = null;
        this.#line(line, 0, line.length, nowMs);
      }
      start = end + 1;
    }
    if (start === to) return;
    // The bytes are copied, because the socket may reuse its buffer.
    const rest = data.subarray(start, to);
    this.#carry = this.#carry === null ? Buffer.from(rest) : Buffer.concat([this.#carry, rest]);
  }

  #line(data: Buffer, start: number, end: number, nowMs: number): void {
    if (end - start <= prefix.length || data.compare(prefix, 0, prefix.length, start, start + prefix.length) !== 0)
      return;
    if (hasText(data, this.#textKey, start, end)) {
      if (this.textCount === 0) this.firstTextMs = nowMs;
      else this.#gapsMs.push(nowMs - this.lastTextMs);
      this.lastTextMs = nowMs;
      this.textCount++;
    }
    if (hasObject(data, usageKey, start, end) || hasObject(data, errorKey, start, end)) this.#plain(data, start, end);
  }

  #plain(data: Buffer, start: number, end: number): void {
    const { usage, response, error } = parseChunk(data.toString("utf8", start + prefix.length, end));
    const counts = usage ?? response?.usage;
    if (counts) this.usage = "prompt_tokens" in counts ? counts : namedAnew(counts);
    if (error) this.error = String(error.code ?? error.type ?? error.message ?? "unnamed");
  }
}

function parseChunk(text: string): PlainChunk {
  try {
    return JSON.parse(text) as PlainChunk;
  } catch {
    return { error: { message: "a line that is not JSON" } };
  }
}

function namedAnew({ input_tokens, output_tokens }: NewerUsage): StreamUsage {
  return { prompt_tokens: input_tokens, completion_tokens: output_tokens };
}

function hasText(data: Buffer, textKey: Buffer, start: number, end: number): boolean {
  for (let at = valueAt(data, textKey, start, end); at !== -1; at = valueAt(data, textKey, at, end)) {
    if (data[at] === quote && data[at + 1] !== quote) return true;
  }
  return false;
}

function hasObject(data: Buffer, key: Buffer, start: number, end: number): boolean {
  const at = valueAt(data, key, start, end);
  return at !== -1 && data[at] === brace;
}

/**
 * Returns the offset of the value of the next field `key`, or -1. A text cannot contain the key, because quotes within a text
 * are escaped.
 */
function valueAt(data: Buffer, key: Buffer, start: number, end: number): number {
  const found = data.indexOf(key, start);
  if (found === -1 || found >= end) return -1;
  const at = found + key.length;
  return data[at] === space ? at + 1 : at;
}
