// One streaming chat over a separate connection, with everything it received: text, times, token counts. For benchmarks that check
// answers; load.ts measures speed only.
import { performance } from "node:perf_hooks";
import { postBytes } from "../target.ts";
import { EventScanner } from "./event-scanner.ts";
import { HttpClient } from "./http-client.ts";
import { percentiles } from "./statistics.ts";

/** No answer takes so long. */
const limitMs = 300_000;
const eventPrefix = "data: ";

export interface ChatMessage {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

export interface Question {
  readonly messages: readonly ChatMessage[];
  readonly maxTokens: number;
  /** Fields of the request beside these; without them it is greedy. */
  readonly fields?: Readonly<Record<string, unknown>>;
}

export interface Answer {
  /** Of the answer's head; 0 if none came. */
  readonly status: number;
  readonly text: string;
  readonly startMs: number;
  /** NaN where no text came. */
  readonly firstTextMs: number;
  readonly lastTextMs: number;
  readonly endMs: number;
  /** 0 where the answer does not say. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** What went wrong; null for an answer in full. */
  readonly error: string | null;
}

export interface AskOptions {
  /** Takes the pauses between texts. */
  readonly gapsMs?: number[];
  /** Hangs up. */
  readonly signal?: AbortSignal;
}

/** Never rejects: what went wrong is part of the answer. */
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

/** Milliseconds from first to last text, over the tokens in between, of all answers in full together. */
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

/** Keeps an answer's bytes, and reads their text when nothing is timed any more. */
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

/** What a refusal says, or all of it where it is not as refusals are. */
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

/** The text of a stream; a line cut short by a lost connection is left out. */
function textOf(stream: string): string {
  const lines = stream.slice(0, stream.lastIndexOf("\n")).split("\n");
  const events = lines.filter((line) => line.startsWith(`${eventPrefix}{`));
  return events
    .map((line) => (JSON.parse(line.slice(eventPrefix.length)) as TextEvent).choices?.[0]?.delta?.content ?? "")
    .join("");
}
