// Program of the bystander: a well-behaved client in a separate process. It continuously requests small streamed chats, one
// after another, and /health, and reports its waiting times to its parent process.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { EventScanner } from "../../serving/client/event-scanner.ts";
import { type AnswerSink, HttpClient } from "../../serving/client/http-client.ts";
import { postBytes } from "../../serving/target.ts";
import type { BystanderSetup, Observations, Waits } from "./bystander.ts";

const chatPauseMs = 200;
const healthPauseMs = 20;
const rarePauseMs = 3000;
const chatTokens = 4;

const { url: address, key, schemas } = JSON.parse(process.argv[2] ?? "{}") as BystanderSetup;
const url = new URL(address);

/** Waiting times of one kind of request. The requests are sent one after another. */
class Series {
  #doneMs: number[] = [];
  #failures: Record<string, number> = {};
  #failedMs = 0;
  #startedMs: number | null = null;

  /** Repeats `ask`, which returns the milliseconds waited or the name of a failure. */
  async run(pauseMs: number, ask: () => Promise<number | string>): Promise<never> {
    for (;;) {
      const startedMs = performance.now();
      this.#startedMs = startedMs;
      const waited = await ask();
      this.#startedMs = null;
      if (typeof waited === "number") this.#doneMs.push(waited);
      else {
        this.#failures[waited] = (this.#failures[waited] ?? 0) + 1;
        this.#failedMs = Math.max(this.#failedMs, performance.now() - startedMs);
      }
      await sleep(Math.max(1, pauseMs - (performance.now() - startedMs)));
    }
  }

  take(): Waits {
    const pendingMs = this.#startedMs === null ? 0 : performance.now() - this.#startedMs;
    const waits = { doneMs: this.#doneMs, pendingMs, failures: this.#failures, failedMs: this.#failedMs };
    this.#doneMs = [];
    this.#failures = {};
    this.#failedMs = 0;
    return waits;
  }
}

class ChatSink implements AnswerSink {
  /** Pauses between the texts of a stream. */
  readonly gapsMs: number[] = [];
  readonly scanner = new EventScanner(this.gapsMs);
  status = 0;

  head(status: number): void {
    this.status = status;
  }

  body(data: Buffer, from: number, to: number, nowMs: number): void {
    this.scanner.scan(data, from, to, nowMs);
  }
}

/**
 * Returns the milliseconds to the first text of a streamed chat, or the longest later pause if that is longer, because an
 * attack may begin in mid-response. Returns the name of the failure if the chat failed.
 */
async function chat(fields: object): Promise<number | string> {
  const client = new HttpClient(url);
  const sink = new ChatSink();
  const body = JSON.stringify({ stream: true, temperature: 0, max_tokens: chatTokens, ...fields });
  const startMs = performance.now();
  try {
    await client.exchange(postBytes(url, "chat/completions", body, key), sink);
  } catch (error) {
    return nameOf(error);
  } finally {
    client.close();
  }
  const { error, firstTextMs, lastTextMs } = sink.scanner;
  if (sink.status !== 200) return String(sink.status);
  if (error !== null) return error;
  const endMs = performance.now();
  if (Number.isNaN(firstTextMs)) return endMs - startMs;
  return Math.max(firstTextMs - startMs, endMs - lastTextMs, ...sink.gapsMs);
}

/** Returns the name of an error. Some errors have a code only at the start of the message. */
function nameOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return code ?? message.split(":")[0] ?? "failed";
}

/** Health checks reuse one connection, as a load balancer does. */
const healthClient = new HttpClient(url);
const healthRequest = Buffer.from(`GET /health HTTP/1.1\r\nhost: ${url.host}\r\n\r\n`);

async function health(): Promise<number | string> {
  const startMs = performance.now();
  let status = 0;
  const sink: AnswerSink = {
    head(got) {
      status = got;
    },
    body() {},
  };
  try {
    await healthClient.exchange(healthRequest, sink);
  } catch (error) {
    return nameOf(error);
  }
  return status === 200 ? performance.now() - startMs : String(status);
}

let count = 0;

/** Every chat begins differently, so that the prefix cache does not help. */
const words = () => ({ messages: `${++count}: say something.` });

/** Returns schema number `number`. Without a number, returns a new schema, which the server must compile. */
function schema(number = ++count) {
  const name = `field${number}`;
  const object = { type: "object", properties: { [name]: { type: "integer" } }, required: [name] };
  return { response_format: { type: "json_schema", json_schema: { name: "answer", schema: object } } };
}

const chats = new Series();
const schemaChats = new Series();
const knownSchemaChats = new Series();
const healths = new Series();
void chats.run(chatPauseMs, () => chat(words()));
void healths.run(healthPauseMs, health);
const newPauseMs = schemas === "new" ? chatPauseMs : rarePauseMs;
if (schemas !== "none") void schemaChats.run(newPauseMs, () => chat({ ...words(), ...schema() }));
if (schemas === "mostly known") void knownSchemaChats.run(chatPauseMs, () => chat({ ...words(), ...schema(0) }));

process.on("message", () => {
  const observations: Observations = {
    chats: chats.take(),
    schemaChats: schemaChats.take(),
    knownSchemaChats: knownSchemaChats.take(),
    healths: healths.take(),
  };
  process.send?.(observations);
});
process.on("disconnect", () => process.exit());
