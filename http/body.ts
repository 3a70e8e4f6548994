// Owns the limits on request bodies: of one, and of all that are held at once. Each edge feeds its chunks to a
// BodyReader; a body over a limit is refused at its first byte too many, or before that by its content-length.
import { ServerError } from "../runtime/errors.ts";

/** The contract's limit of one body. */
export const MAX_BODY_BYTES = 50 * 1024 * 1024;
const DEFAULT_BYTES_IN_FLIGHT = 8 * MAX_BODY_BYTES;

const EMPTY = new Uint8Array(0);
/** Chunks that are kept apart. A client may send one byte a chunk, and each costs some 200 bytes besides. */
const LOOSE_CHUNKS = 1024;

/** Counts the bytes of all bodies held by one server: those of requests that are not answered yet. */
export class BodyBudget {
  readonly limitBytes: number;
  #usedBytes = 0;

  constructor(limitBytes: number = DEFAULT_BYTES_IN_FLIGHT) {
    this.limitBytes = limitBytes;
  }

  take(bytes: number): boolean {
    if (this.#usedBytes + bytes > this.limitBytes) return false;
    this.#usedBytes += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#usedBytes -= bytes;
  }
}

/** Whether a request with these headers brings a body. */
export function bringsBody(headers: ReadonlyMap<string, string>): boolean {
  const length = headers.get("content-length");
  return (length !== undefined && length !== "0") || headers.has("transfer-encoding");
}

/** Collects the body of one request. */
export class BodyReader {
  readonly #budget: BodyBudget;
  #joined: Uint8Array[] = [];
  #loose: Uint8Array[] = [];
  #sizeBytes = 0;

  constructor(budget: BodyBudget) {
    this.#budget = budget;
  }

  /** Why a body that says it is this long will not be read, or null. */
  refuseLength(contentLength: string | undefined): ServerError | null {
    const bytes = Number(contentLength ?? 0);
    return bytes > MAX_BODY_BYTES ? tooLarge(`${bytes} bytes`) : null;
  }

  /** Takes a chunk, which it keeps; or says why the body is refused and forgets what it had. */
  add(chunk: Uint8Array): ServerError | null {
    if (this.#sizeBytes + chunk.byteLength > MAX_BODY_BYTES) {
      this.release();
      return tooLarge("more");
    }
    if (!this.#budget.take(chunk.byteLength)) {
      this.release();
      return new ServerError(
        "queue_full",
        `the bodies of requests in flight would exceed ${this.#budget.limitBytes} bytes ` +
          "(max_body_bytes_in_flight); try again when some have ended",
      );
    }
    this.#loose.push(chunk);
    this.#sizeBytes += chunk.byteLength;
    if (this.#loose.length === LOOSE_CHUNKS) {
      this.#joined.push(Buffer.concat(this.#loose));
      this.#loose = [];
    }
    return null;
  }

  bytes(): Uint8Array {
    const chunks = [...this.#joined, ...this.#loose];
    return chunks.length <= 1 ? (chunks[0] ?? EMPTY) : Buffer.concat(chunks, this.#sizeBytes);
  }

  /** Gives the bytes back to the budget: the request has ended. */
  release(): void {
    this.#budget.giveBack(this.#sizeBytes);
    this.#joined = [];
    this.#loose = [];
    this.#sizeBytes = 0;
  }
}

function tooLarge(got: string): ServerError {
  return new ServerError("body_too_large", `expected a body of at most ${MAX_BODY_BYTES} bytes, got ${got}`);
}
