// Body limits: maximum bytes of one body, of one client's bodies, and of all bodies in memory. A body is rejected if its
// content-length exceeds the first limit, or as soon as the received bytes exceed any limit.
import { ServerError } from "../../runtime/errors.ts";

/** Maximum bytes of one body, from the API contract. */
export const MAX_BODY_BYTES = 50 * 1024 * 1024;
const DEFAULT_BYTES_IN_FLIGHT = 8 * MAX_BODY_BYTES;
/** Maximum fraction of the budget for one client, so that other clients have room. */
const CLIENT_SHARE = 1 / 2;

const EMPTY = new Uint8Array(0);
/**
 * Number of separate chunks at which the chunks are joined into one buffer. A client may send one byte per chunk, and each
 * separate chunk costs about 200 bytes in addition to its data.
 */
const LOOSE_CHUNKS = 1024;

/**
 * Budget for the body bytes that one server holds. Bytes count from their arrival until they are released, usually after the
 * body has been parsed.
 */
export class BodyBudget {
  readonly limitBytes: number;
  /** Maximum bytes of one client: CLIENT_SHARE of the budget, but at least one body of maximum size. */
  readonly clientLimitBytes: number;
  #usedBytes = 0;
  readonly #usedByClient = new Map<string, number>();

  constructor(limitBytes: number = DEFAULT_BYTES_IN_FLIGHT) {
    this.limitBytes = limitBytes;
    this.clientLimitBytes = Math.max(Math.floor(limitBytes * CLIENT_SHARE), Math.min(limitBytes, MAX_BODY_BYTES));
  }

  /** Counts bytes of a client. Returns an error if a limit is exceeded, else null. */
  take(client: string, bytes: number): ServerError | null {
    const ofClient = (this.#usedByClient.get(client) ?? 0) + bytes;
    if (ofClient > this.clientLimitBytes) {
      return full(
        `the bodies of this client's requests in flight would exceed its share of ${this.clientLimitBytes} bytes`,
      );
    }
    if (this.#usedBytes + bytes > this.limitBytes) {
      return full(`the bodies of requests in flight would exceed ${this.limitBytes} bytes`);
    }
    this.#usedBytes += bytes;
    this.#usedByClient.set(client, ofClient);
    return null;
  }

  giveBack(client: string, bytes: number): void {
    this.#usedBytes -= bytes;
    const left = (this.#usedByClient.get(client) ?? 0) - bytes;
    if (left > 0) this.#usedByClient.set(client, left);
    else this.#usedByClient.delete(client);
  }
}

/** Returns whether the headers announce a body. */
export function bringsBody(headers: ReadonlyMap<string, string>): boolean {
  const length = headers.get("content-length");
  return (length !== undefined && length !== "0") || headers.has("transfer-encoding");
}

/** Returns the error for a body with this content-length; null if the size is allowed. */
export function refusedLength(contentLength: string | undefined): ServerError | null {
  const bytes = Number(contentLength ?? 0);
  return bytes > MAX_BODY_BYTES ? tooLarge(`${bytes} bytes`) : null;
}

/** Collects the body of one request. */
export class BodyReader {
  readonly #budget: BodyBudget;
  readonly #client: string;
  #joined: Uint8Array[] = [];
  #loose: Uint8Array[] = [];
  /** Bytes received. */
  #sizeBytes = 0;
  /** Bytes counted in the budget. */
  #takenBytes = 0;

  constructor(budget: BodyBudget, client: string) {
    this.#budget = budget;
    this.#client = client;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Adds a chunk. If a limit is exceeded, drops all chunks and returns the error. */
  add(chunk: Uint8Array): ServerError | null {
    const isTooLarge = this.#sizeBytes + chunk.byteLength > MAX_BODY_BYTES;
    const refusal = isTooLarge ? tooLarge("more") : this.#budget.take(this.#client, chunk.byteLength);
    if (refusal !== null) {
      this.release();
      return refusal;
    }
    this.#loose.push(chunk);
    this.#sizeBytes += chunk.byteLength;
    this.#takenBytes += chunk.byteLength;
    if (this.#loose.length === LOOSE_CHUNKS) {
      this.#joined.push(Buffer.concat(this.#loose));
      this.#loose = [];
    }
    return null;
  }

  /** Returns the complete body. It stays counted in the budget until `release`. */
  take(): Uint8Array {
    const chunks = [...this.#joined, ...this.#loose];
    this.#joined = [];
    this.#loose = [];
    return chunks.length <= 1 ? (chunks[0] ?? EMPTY) : Buffer.concat(chunks, this.#sizeBytes);
  }

  /** Returns all bytes except `keptBytes` to the budget. */
  release(keptBytes = 0): void {
    const freedBytes = this.#takenBytes - keptBytes;
    if (freedBytes > 0) {
      this.#budget.giveBack(this.#client, freedBytes);
      this.#takenBytes = keptBytes;
    }
    this.#joined = [];
    this.#loose = [];
  }
}

function full(what: string): ServerError {
  return new ServerError("queue_full", `${what} (max_body_bytes_in_flight); try again when some have ended`);
}

export function tooLarge(got: string): ServerError {
  return new ServerError("body_too_large", `expected a body of at most ${MAX_BODY_BYTES} bytes, got ${got}`);
}
