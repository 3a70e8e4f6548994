// Client that sends one streaming chat over a separate connection and keeps everything it received: text, times, token counts.
// For benchmarks that check responses; load.ts measures only speed.
import { performance } from "node:perf_hooks";
import { postBytes } from "../target.ts";
import { EventScanner } from "./event-scanner.ts";
import { HttpClient } from "./http-client.ts";
import { percentiles } from "./statistics.ts";

/** Maximum time for a response. */
const limitMs = 300_000;
const eventPrefix = "data: ";

export interface ChatMessage {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

export interface Question {
  readonly messages: readonly ChatMessage[];
  readonly maxTokens: number;
  /** Additional fields of the request. By default the request is greedy. */
  readonly fields?: Readonly<Record<string, unknown>>;
}

export interface Answer {
  /** HTTP status; 0 if no response came. */
  readonly status: number;
  readonly text: string;
  readonly startMs: number;
  /** Time of the first text; NaN if no text came. */
  readonly firstTextMs: number;
  readonly lastTextMs: number;
  readonly endMs: number;
  /** Number of prompt tokens; 0 if the response does not report it. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Description of the failure; null for a complete response. */
  readonly error: string | null;
}

export interface AskOptions {
  /** Array to which the pauses between texts are added. */
  readonly gapsMs?: number[];
  /** Disconnects the client when aborted. */
  readonly signal?: AbortSignal;
}

/** Sends a question. Never rejects: a failure is part of the result. */
export async function ask(url: URL, question: Question, options: AskOptions = {}): Promise<Answer> {
  const client = new HttpClient(url);
  const sink = new TextSink(options.gapsMs ?? []);
  const hangUp = () => client.close();
  const timer = setTimeout(hangUp, limitMs);
  options.signal?.addEventListener("abort", hangUp);
  const startMs = performance.now();
  let failure: string | null = null;
  try {
    await client.exchange(postBytes(url, "chat/completions", bodyOf(question), null), sink);
  } catch (error) {
    failure = (error as Error).message;
  }
  const endMs = performance.now();
  clearTimeout(timer);
  options.signal?.removeEventListener("abort", hangUp);
  client.close();
  return { startMs, endMs, ...sink.answer(failure) };
}

export function firstTextAfterMs({ startMs, firstTextMs }: Answer): number {
  return firstTextMs - startMs;
}

/** Returns the milliseconds per token from the first to the last text, over all complete responses together. */
export function msPerToken(answers: readonly Answer[]): number {
  const whole = answers.filter(isWhole);
  const ms = sumOf(whole, ({ firstTextMs, lastTextMs }) => lastTextMs - firstTextMs);
  return ms / sumOf(whole, ({ completionTokens }) => completionTokens - 1);
}

export function firstTextPercentiles(answers: readonly Answer[]) {
  return percentiles(answers.filter(isWhole).map(firstTextAfterMs));
}

export function isWhole({ error }: Answer): boolean {
  return error === null;
}

export function sumOf(answers: readonly Answer[], value: (answer: Answer) => number): number {
  return answers.reduce((sum, answer) => sum + value(answer), 0);
}

function bodyOf({ messages, maxTokens, fields }: Question): string {
  const stream = { stream: true, stream_options: { include_usage: true } };
  return JSON.stringify({ messages, ...stream, max_tokens: maxTokens, temperature: 0, ...fields });
}

/** Stores the bytes of a response, and extracts the text after the time measurement has ended. */
class TextSink {
  readonly #scanner: EventScanner;
  readonly #bytes: Buffer[] = [];
  #status = 0;
  #isStream = false;

  constructor(gapsMs: number[]) {
    this.#scanner = new EventScanner(gapsMs);
  }

  head(status: number, isStream: boolean): void {
    this.#status = status;
    this.#isStream = isStream;
  }

  body(data: Buffer, from: number, to: number, nowMs: number): void {
    if (this.#isStream) this.#scanner.scan(data, from, to, nowMs);
    this.#bytes.push(Buffer.from(data.subarray(from, to)));
  }

  answer(failure: string | null): Omit<Answer, "startMs" | "endMs"> {
    const { firstTextMs, lastTextMs, usage, error } = this.#scanner;
    const received = Buffer.concat(this.#bytes).toString();
    const refusal = this.#isStream ? error : `${this.#status} ${messageIn(received)}`;
    return {
      status: this.#status,
      text: this.#isStream ? textOf(received) : "",
      firstTextMs,
      lastTextMs,
      promptTokens: usage?.prompt_tokens ?? 0,
      cachedTokens: usage?.prompt_tokens_details?.cached_tokens ?? 0,
      completionTokens: usage?.completion_tokens ?? 0,
      error: failure ?? refusal ?? (usage ? null : "no usage in the stream"),
    };
  }
}

/** Returns the error message of a response, or the whole body if it is not a regular error. */
function messageIn(body: string): string {
  try {
    return (JSON.parse(body) as { error?: { message?: string } }).error?.message ?? body;
  } catch {
    return body;
  }
}

interface TextEvent {
  readonly choices?: readonly { readonly delta?: { readonly content?: string | null } }[];
}

/** Returns the text of a stream, without a line cut short by a lost connection. */
function textOf(stream: string): string {
  const lines = stream.slice(0, stream.lastIndexOf("\n")).split("\n");
  const events = lines.filter((line) => line.startsWith(`${eventPrefix}{`));
  return events
    .map((line) => (JSON.parse(line.slice(eventPrefix.length)) as TextEvent).choices?.[0]?.delta?.content ?? "")
    .join("");
}
