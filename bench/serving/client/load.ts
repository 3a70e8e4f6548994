// Load generator: a number of clients that each send the next request after a response, or requests at given arrival times. It
// records the outcomes.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import type { EndpointName } from "../target.ts";
import { EventScanner, type StreamUsage } from "./event-scanner.ts";
import { HttpClient } from "./http-client.ts";

export type Pace =
  | { readonly kind: "clients"; readonly count: number }
  /** Start time of each request, in ms. */
  | { readonly kind: "arrivals"; readonly atMs: readonly number[] };

export interface Outcome {
  readonly startMs: number;
  /** Time of the first text; NaN if the response is not a stream or had no text. */
  readonly firstTextMs: number;
  readonly lastTextMs: number;
  readonly endMs: number;
  readonly usage: StreamUsage | null;
  /** Kind of failure; null for a success. */
  readonly error: string | null;
}

export interface LoadResult {
  /** Time from the start of the first request to the end of the last one. */
  readonly wallMs: number;
  readonly outcomes: readonly Outcome[];
  /** Pauses between two texts of the same stream. */
  readonly gapsMs: readonly number[];
}

export interface Load {
  readonly url: URL;
  /** Endpoint, which decides how the responses are read. */
  readonly endpoint: EndpointName;
  readonly requests: readonly Buffer[];
  readonly pace: Pace;
}

/** Sends every request and waits for all responses. */
export async function runLoad({ url, endpoint, requests, pace }: Load, onDone: () => void): Promise<LoadResult> {
  const outcomes: Outcome[] = [];
  const gapsMs: number[] = [];
  const clients: HttpClient[] = [];
  const idle: HttpClient[] = [];
  const send = async (request: Buffer): Promise<void> => {
    const client = idle.pop() ?? new HttpClient(url);
    outcomes.push(await exchange(client, request, new Answer(gapsMs, endpoint)));
    idle.push(client);
    onDone();
  };
  if (pace.kind === "clients") {
    for (let i = 0; i < pace.count; i++) clients.push(new HttpClient(url));
    idle.push(...clients);
    // A connection error is ignored here: it recurs when a request uses the connection, and is recorded there.
    await Promise.all(clients.map((client) => client.connect().catch(() => undefined)));
  }
  const startMs = performance.now();
  await (pace.kind === "clients" ? inTurn(requests, pace.count, send) : asTheyArrive(requests, pace.atMs, send));
  const wallMs = performance.now() - startMs;
  for (const client of idle) client.close();
  return { wallMs, outcomes, gapsMs };
}

async function inTurn(requests: readonly Buffer[], count: number, send: (request: Buffer) => Promise<void>) {
  const queue = requests.values();
  const client = async () => {
    for (const request of queue) await send(request);
  };
  await Promise.all(Array.from({ length: count }, client));
}

async function asTheyArrive(
  requests: readonly Buffer[],
  atMs: readonly number[],
  send: (request: Buffer) => Promise<void>,
): Promise<void> {
  const startMs = performance.now();
  const sent = requests.map(async (request, i) => {
    await sleep(Math.max(0, (atMs[i] ?? 0) - (performance.now() - startMs)));
    await send(request);
  });
  await Promise.all(sent);
}

async function exchange(client: HttpClient, request: Buffer, answer: Answer): Promise<Outcome> {
  const startMs = performance.now();
  let failure: string | null = null;
  try {
    await client.exchange(request, answer);
  } catch (error) {
    failure = errorName(error);
    client.close();
  }
  const endMs = performance.now();
  return { startMs, endMs, ...answer.outcome(), ...(failure === null ? {} : { error: failure }) };
}

/** Reader of one response: a stream is scanned as it arrives, any other body is collected. */
class Answer {
  readonly #scanner: EventScanner;
  #code = 0;
  #isStream = true;
  #text = "";

  constructor(gapsMs: number[], endpoint: EndpointName) {
    this.#scanner = new EventScanner(gapsMs, endpoint === "embeddings" ? undefined : endpoint);
  }

  head(code: number, isStream: boolean): void {
    this.#code = code;
    this.#isStream = isStream;
  }

  body(data: Buffer, from: number, to: number, nowMs: number): void {
    if (this.#isStream) this.#scanner.scan(data, from, to, nowMs);
    else this.#text += data.toString("latin1", from, to);
  }

  outcome(): Omit<Outcome, "startMs" | "endMs"> {
    const { firstTextMs, lastTextMs, usage, error } = this.#scanner;
    if (this.#isStream)
      return { firstTextMs, lastTextMs, usage, error: error ?? (usage ? null : "no usage in the stream") };
    const whole = wholeAnswer(this.#text);
    const isGood = this.#code === 200 && whole.usage !== null;
    return { firstTextMs, lastTextMs, usage: whole.usage, error: isGood ? null : `${this.#code} ${whole.error}` };
  }
}

/** Token usage of a whole body. Embeddings have no output tokens. */
type WholeUsage = Omit<StreamUsage, "completion_tokens"> & Partial<StreamUsage>;

function wholeAnswer(text: string): { usage: StreamUsage | null; error: string } {
  try {
    const { usage, error } = JSON.parse(text) as { usage?: WholeUsage; error?: { code?: unknown; type?: unknown } };
    return {
      usage: usage ? { completion_tokens: 0, ...usage } : null,
      error: String(error?.code ?? error?.type ?? "no usage in the answer"),
    };
  } catch {
    return { usage: null, error: "not JSON" };
  }
}

/** Returns the kind of a connection failure, so that equal failures are counted together. */
function errorName(error: unknown): string {
  const { code, message, name } = error as Error & { code?: string };
  return name === "AbortError" ? "connecting took too long" : (code ?? message);
}
