// Scanner of server-sent events with minimal work: it finds line ends and the mark of a text, notes when texts arrive, and parses
// only lines with a usage or an error. One scanner per answer.
import type { EndpointName } from "../target.ts";

/** What stands before a delta's text, by protocol; the first is at the end of `reasoning_content` too. */
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

/** Token counts as an answer gives them. */
export interface StreamUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
}

/** The same in the words of the newer protocols. */
interface NewerUsage {
  readonly input_tokens: number;
  readonly output_tokens: number;
}

interface PlainChunk {
  readonly usage?: StreamUsage | NewerUsage | null;
  /** Where the newer protocols keep it in some of their events. */
  readonly response?: { readonly usage?: NewerUsage | null };
  readonly error?: { readonly code?: unknown; readonly type?: unknown; readonly message?: unknown } | null;
}

export class EventScanner {
  /** Texts that were not empty. */
  textCount = 0;
  firstTextMs = Number.NaN;
  lastTextMs = Number.NaN;
  usage: StreamUsage | null = null;
  /** Code or message of an error inside the stream. */
  error: string | null = null;
  readonly #gapsMs: number[];
  readonly #textKey: Buffer;
  /** The beginning of a line whose end has not come yet. */
  #carry: Buffer | null = null;

  /** The pauses between texts are added to `gapsMs`. */
  constructor(gapsMs: number[], endpoint: StreamingEndpoint = "chat") {
    this.#gapsMs = gapsMs;
    this.#textKey = textKeys[endpoint];
  }

  /** Reads `data[from, to)`, which arrived at `nowMs`. */
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
    // Copied, since the socket's buffer is not ours to keep.
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

/** Where the value of the next such field begins, or -1. Inside a text every quote is escaped, so it holds no keys. */
function valueAt(data: Buffer, key: Buffer, start: number, end: number): number {
  const found = data.indexOf(key, start);
  if (found === -1 || found >= end) return -1;
  const at = found + key.length;
  return data[at] === space ? at + 1 : at;
}
