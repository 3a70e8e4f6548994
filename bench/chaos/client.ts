// Client of the chaos suite: sends one request, reads the response (JSON or server-sent events) and records how it ended.
import { type ClientRequest, type IncomingMessage, request } from "node:http";

/** One event of a stream. */
export interface StreamEvent {
  readonly text: string;
  readonly data: Record<string, unknown>;
}

export type Ending =
  /** The response is complete. */
  | "whole"
  /** The connection broke or was never established. */
  | "cut"
  /** The client closed the connection. */
  | "left";

export interface CallOptions {
  readonly method?: string;
  readonly body?: object | string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A request that has been sent. */
export class Call {
  /** HTTP status; 0 until the response headers have arrived. */
  status = 0;
  /** Body of a response that is not a stream. */
  text = "";
  /** Why the connection broke; "" if it did not. */
  reason = "";
  /** Whether the stream has ended with [DONE]. */
  isDone = false;
  readonly events: StreamEvent[] = [];
  readonly sentMs = performance.now();
  endedMs = Number.POSITIVE_INFINITY;
  readonly ended: Promise<Ending>;
  readonly #request: ClientRequest;
  #hasLeft = false;
  #isStream = false;
  #rest = "";
  #waits: (() => void)[] = [];

  constructor(url: string, { method, body, headers }: CallOptions = {}) {
    const bytes = body === undefined || typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body);
    this.#request = request(url, {
      method: method ?? (bytes === undefined ? "GET" : "POST"),
      agent: false,
      headers: {
        ...(bytes === undefined
          ? {}
          : { "content-type": "application/json", "content-length": Buffer.byteLength(bytes) }),
        ...headers,
      },
    });
    this.ended = new Promise((resolve) => {
      const end = (ending: Ending, reason = ""): void => {
        if (Number.isFinite(this.endedMs)) return;
        this.endedMs = performance.now();
        this.reason = reason;
        resolve(this.#hasLeft ? "left" : ending);
        this.#wake();
      };
      this.#request.on("error", (error: NodeJS.ErrnoException) => end("cut", error.code ?? error.message));
      this.#request.on("response", (response) => this.#read(response, end));
      this.#request.on("close", () => end("cut", "closed"));
    });
    this.#request.end(bytes);
  }

  get isOver(): boolean {
    return Number.isFinite(this.endedMs);
  }

  /** Body parsed as JSON; null if it is not JSON. */
  get json(): Record<string, unknown> | null {
    try {
      return JSON.parse(this.text) as Record<string, unknown>;
    } catch {
      return null;
    }
  }

  /** Waits for an event for which `fits` returns true. Resolves to false if the response ends without one. */
  async has(fits: (event: StreamEvent) => boolean): Promise<boolean> {
    for (;;) {
      if (this.events.some(fits)) return true;
      if (this.isOver) return false;
      await new Promise<void>((resolve) => this.#waits.push(resolve));
    }
  }

  leave(): void {
    if (this.isOver) return;
    this.#hasLeft = true;
    this.#request.destroy();
  }

  #read(response: IncomingMessage, end: (ending: Ending, reason?: string) => void): void {
    this.status = response.statusCode ?? 0;
    this.#isStream = String(response.headers["content-type"]).startsWith("text/event-stream");
    response.setEncoding("utf8");
    response.on("data", (piece: string) => {
      if (this.#isStream) this.#take(piece);
      else this.text += piece;
    });
    response.on("end", () => end(response.complete ? "whole" : "cut", "incomplete"));
    response.on("error", (error: NodeJS.ErrnoException) => end("cut", error.code ?? error.message));
  }

  #take(piece: string): void {
    const blocks = (this.#rest + piece).split("\n\n");
    this.#rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const text = /^data: (.*)$/m.exec(block)?.[1];
      if (text === "[DONE]") this.isDone = true;
      else if (text !== undefined) this.events.push({ text, data: JSON.parse(text) as Record<string, unknown> });
    }
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waits.splice(0)) wake();
  }
}

/** Sends a request and resolves when the response has ended. After `limitMs`, the client closes the connection. */
export async function answered(url: string, options: CallOptions = {}, limitMs = 30_000): Promise<Call> {
  const call = new Call(url, options);
  const timer = setTimeout(() => call.leave(), limitMs);
  await call.ended;
  clearTimeout(timer);
  return call;
}
