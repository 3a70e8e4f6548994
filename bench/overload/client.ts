// Clients of `bench overload`. Each client opens one raw connection, requests one stream, and then reads to the end,
// disconnects, or never reads. The clients use little CPU, because they share the cores with the server.
import { connect, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { EventScanner } from "../serving/client/event-scanner.ts";
import { BodyReader } from "../serving/client/http-body.ts";

const headEnd = "\r\n\r\n";

export interface Question {
  readonly prompt: string;
  readonly maxTokens: number;
}

/** Time at which a client disconnects: after `afterTexts` texts, or after `afterMs` if it has no text by then. */
export type HangUp =
  | { readonly afterTexts: number }
  | {
      readonly afterMs: number;
    };

export interface AskOptions {
  /** API key of the client; absent: the server identifies the client by its address. */
  readonly key?: string;
  readonly hangUp?: HangUp;
}

export interface Answer {
  /**
   * done: complete, up to its `[DONE]`; refused: the server sent an error; hung up: the client disconnected; cut: the
   * connection or the stream failed.
   */
  readonly outcome: "done" | "refused" | "hung up" | "cut";
  /** HTTP status; 0 if no response came. */
  readonly status: number;
  readonly retryAfter: string | null;
  readonly sentMs: number;
  /** Time at which the first byte of the response came. */
  readonly headMs: number;
  readonly firstTextMs: number;
  readonly lastTextMs: number;
  readonly endMs: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** Sends a question over a new connection. Settles when the connection has ended, successfully or not. */
export function ask(port: number, question: Question, options: AskOptions = {}): Promise<Answer> {
  return new Promise((resolve) => new Exchange(port, question, options, resolve));
}

/** Starts a client that requests `choices` responses with logprobs and never reads them. */
export function standStill(port: number, question: Question, choices: number): Socket {
  const socket = connect({ host: "127.0.0.1", port });
  socket.on("error", () => {});
  socket.pause();
  socket.write(requestOf(question, null, { n: choices, logprobs: true, top_logprobs: 20 }));
  return socket;
}

/** Reads all unread data of a stalled client, until the connection ends. Returns true if the response is complete. */
export function holdsWholeAnswer(socket: Socket): Promise<boolean> {
  let tail = "";
  return new Promise((resolve) => {
    socket.on("data", (data: Buffer) => {
      tail = (tail + data.toString("latin1")).slice(-2000);
      if (tail.includes('"completion_tokens"')) socket.destroy();
    });
    socket.on("close", () => resolve(tail.includes('"completion_tokens"')));
    if (socket.destroyed) resolve(false);
    socket.resume();
  });
}

function requestOf({ prompt, maxTokens }: Question, key: string | null, extra: object): string {
  const body = JSON.stringify({
    messages: [{ role: "user", content: prompt }],
    max_tokens: maxTokens,
    stream: true,
    temperature: 0,
    ignore_eos: true,
    ...extra,
  });
  const authorization = key === null ? "" : `Authorization: Bearer ${key}\r\n`;
  const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n`;
  return `${head}${authorization}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

class Exchange {
  readonly #sentMs = performance.now();
  readonly #socket: Socket;
  readonly #scanner = new EventScanner([]);
  readonly #hangUp: HangUp | undefined;
  readonly #settle: (answer: Answer) => void;
  readonly #timer: NodeJS.Timeout | undefined;
  #head = "";
  #headMs = Number.NaN;
  #body: BodyReader | null = null;
  #isWhole = false;
  #hasHungUp = false;

  constructor(port: number, question: Question, { key, hangUp }: AskOptions, settle: (answer: Answer) => void) {
    this.#hangUp = hangUp;
    this.#settle = settle;
    this.#socket = connect({ host: "127.0.0.1", port, noDelay: true });
    this.#socket.on("data", (data: Buffer) => this.#read(data));
    this.#socket.on("error", () => {});
    this.#socket.on("close", () => this.#close());
    this.#socket.write(requestOf(question, key ?? null, {}));
    if (hangUp && "afterMs" in hangUp) {
      this.#timer = setTimeout(() => {
        if (this.#scanner.textCount === 0) this.#leave();
      }, hangUp.afterMs);
    }
  }

  #read(data: Buffer): void {
    const nowMs = performance.now();
    let from = 0;
    if (this.#body === null) {
      from = this.#readHead(data, nowMs);
      if (this.#body === null) return;
    }
    this.#isWhole = this.#body.read(data, from, nowMs);
    const { textCount } = this.#scanner;
    if (this.#isWhole) this.#socket.destroy();
    else if (this.#hangUp && "afterTexts" in this.#hangUp && textCount >= this.#hangUp.afterTexts) this.#leave();
  }

  /**
   * Adds `data` to the head (status line and headers) of the response. Returns the offset of the body in `data` if the head is
   * now complete.
   */
  #readHead(data: Buffer, nowMs: number): number {
    if (this.#head === "") this.#headMs = nowMs;
    const before = this.#head.length;
    this.#head += data.toString("latin1");
    const end = this.#head.indexOf(headEnd);
    if (end === -1) return 0;
    const length = /\r\ncontent-length: *(\d+)/i.exec(this.#head)?.[1];
    const sink = { body: this.#scanner.scan.bind(this.#scanner) };
    this.#body = new BodyReader(length === undefined ? "chunked" : Number(length), sink);
    return end + headEnd.length - before;
  }

  #leave(): void {
    this.#hasHungUp = true;
    this.#socket.destroy();
  }

  #close(): void {
    clearTimeout(this.#timer);
    const { firstTextMs, lastTextMs, usage } = this.#scanner;
    this.#settle({
      outcome: this.#outcome(),
      status: this.#status,
      retryAfter: /\r\nretry-after: *(\S+)/i.exec(this.#head)?.[1] ?? null,
      sentMs: this.#sentMs,
      headMs: this.#headMs,
      firstTextMs,
      lastTextMs,
      endMs: performance.now(),
      promptTokens: usage?.prompt_tokens ?? 0,
      completionTokens: usage?.completion_tokens ?? 0,
    });
  }

  get #status(): number {
    return Number(/^HTTP\/1\.1 (\d{3})/.exec(this.#head)?.[1] ?? 0);
  }

  #outcome(): Answer["outcome"] {
    if (this.#hasHungUp) return "hung up";
    if (this.#isWhole && this.#status !== 200) return "refused";
    return this.#isWhole && this.#scanner.usage !== null && this.#scanner.error === null ? "done" : "cut";
  }
}
