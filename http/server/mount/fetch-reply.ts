// Reply to a request of a fetch-style handler: a web Response. A streamed body has back pressure.
import { deferred } from "../../../runtime/deferred.ts";
import type { EdgeReply } from "../body-intake.ts";
import type { ListedHeaders, StreamSink } from "../edge.ts";
import type { InFlight } from "../in-flight.ts";

/** Number of unread bytes at which writing pauses. */
const highWaterBytes = 64 * 1024;

const CLIENT_GONE = 499;
/** Statuses of responses without a body. */
const bodiless = [204, 205, 304];

const encoder = new TextEncoder();

export class FetchReply implements EdgeReply, StreamSink {
  readonly #response = deferred<Response>();
  /**
   * Response to the request. If the client disconnects early, it resolves to a response with status 499. No one reads
   * that response, but without it the embedding program would log an error.
   */
  readonly response = this.#response.promise;
  closesConnection = false;
  onDone: () => void = () => {};
  readonly #method: string;
  readonly #inFlight: InFlight;
  readonly #aborter = new AbortController();
  #body: ReadableStreamDefaultController<Uint8Array> | null = null;
  #isAnswered = false;
  #isDone = false;
  #wake: () => void = () => {};

  constructor({ method, signal }: Request, inFlight: InFlight) {
    this.#method = method;
    this.#inFlight = inFlight;
    inFlight.add(this);
    const onAbort = () => this.gone();
    signal.addEventListener("abort", onAbort, { once: true });
    this.#aborter.signal.addEventListener("abort", () => signal.removeEventListener("abort", onAbort));
    if (signal.aborted) onAbort();
  }

  get signal(): AbortSignal {
    return this.#aborter.signal;
  }

  get isAnswered(): boolean {
    return this.#isAnswered || this.#isDone;
  }

  send(status: number, headers: ListedHeaders, body: string | Uint8Array): void {
    if (this.isAnswered) return;
    this.#isAnswered = true;
    const bytes = typeof body === "string" ? encoder.encode(body) : body;
    const isBodiless = bodiless.includes(status);
    const length = isBodiless ? {} : { "content-length": `${bytes.length}` };
    // The bytes are copied, because the body may share memory with the server's internal data.
    const content = isBodiless || this.#method === "HEAD" ? null : new Uint8Array(bytes);
    this.#response.resolve(new Response(content, { status, headers: pairsOf({ ...headers, ...length }) }));
    this.#finish();
  }

  stream(status: number, headers: ListedHeaders): StreamSink {
    if (this.isAnswered) return this;
    this.#isAnswered = true;
    const source = {
      start: (controller: ReadableStreamDefaultController<Uint8Array>) => {
        this.#body = controller;
      },
      pull: () => this.#wake(),
      cancel: () => this.gone(),
    };
    const strategy = { highWaterMark: highWaterBytes, size: (chunk?: Uint8Array) => chunk?.byteLength ?? 0 };
    const body = new ReadableStream<Uint8Array>(source, strategy);
    this.#response.resolve(new Response(body, { status, headers: pairsOf(headers) }));
    return this;
  }

  write(piece: string | Uint8Array): boolean {
    if (this.#isDone || this.#body === null || piece.length === 0) return true;
    this.#body.enqueue(typeof piece === "string" ? encoder.encode(piece) : new Uint8Array(piece));
    return this.#isWritable;
  }

  /** Does nothing, because there is no connection to keep open. */
  keepOpen(): void {}

  drained(): Promise<void> {
    if (this.#isDone || this.#isWritable) return Promise.resolve();
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  end(): void {
    if (this.#isDone) return;
    this.#body?.close();
    this.#finish();
  }

  /** Ends the response body with an error, so that the client sees that it is incomplete. */
  abort(): void {
    if (this.#isDone) return;
    this.#body?.error(new Error("the response was interrupted"));
    this.gone();
  }

  /** Called when the client has disconnected. */
  gone(): void {
    if (this.#isDone) return;
    this.#aborter.abort();
    this.#response.resolve(new Response(null, { status: CLIENT_GONE }));
    this.#wake();
    this.#finish();
  }

  get #isWritable(): boolean {
    return (this.#body?.desiredSize ?? 1) > 0;
  }

  #finish(): void {
    this.#isDone = true;
    this.#inFlight.delete(this);
    this.onDone();
  }
}

/** Returns each header and value. */
function pairsOf(headers: ListedHeaders): [name: string, value: string][] {
  return Object.entries(headers).flatMap(([name, values]) =>
    [values].flat().map((value): [string, string] => [name, value]),
  );
}
