// Body spool: writes the body of one upload to a file while it arrives, so that the complete body is never in memory. The file
// is deleted when the request ends.
import { randomBytes } from "node:crypto";
import { createWriteStream, rmSync, type WriteStream } from "node:fs";
import { join } from "node:path";
import { finished } from "node:stream/promises";
import { ServerError } from "../../runtime/errors.ts";
import { MAX_BODY_BYTES, tooLarge } from "./body.ts";

/** Maximum number of concurrent uploads of all clients. */
const MAX_SPOOLS = 32;
/** Maximum number of concurrent uploads of one client. */
const MAX_CLIENT_SPOOLS = 16;
/** Number of unwritten bytes at which reading from the client pauses. */
const HIGH_WATER_BYTES = 256 * 1024;

/** Counter of uploads in progress, in total and per client. An upload counts until its file is deleted. */
export class SpoolCount {
  #count = 0;
  readonly #byClient = new Map<string, number>();

  /** Counts an upload. Returns an error if there are too many. */
  enter(client: string): ServerError | null {
    const ofClient = this.#byClient.get(client) ?? 0;
    if (this.#count >= MAX_SPOOLS || ofClient >= MAX_CLIENT_SPOOLS) {
      const message = `expected at most ${MAX_SPOOLS} uploads at a time, ${MAX_CLIENT_SPOOLS} of one client; try again when some have ended`;
      return new ServerError("queue_full", message);
    }
    this.#count++;
    this.#byClient.set(client, ofClient + 1);
    return null;
  }

  leave(client: string): void {
    this.#count--;
    const left = (this.#byClient.get(client) ?? 1) - 1;
    if (left > 0) this.#byClient.set(client, left);
    else this.#byClient.delete(client);
  }
}

export class BodySpool {
  readonly path: string;
  readonly #client: string;
  readonly #count: SpoolCount;
  readonly #file: WriteStream;
  #sizeBytes = 0;
  #error: ServerError | null = null;
  #isReleased = false;

  /** `count`: counter that has already counted this body. */
  constructor(folder: string, client: string, count: SpoolCount) {
    this.path = join(folder, `upload-${randomBytes(16).toString("hex")}`);
    this.#client = client;
    this.#count = count;
    this.#file = createWriteStream(this.path, { flags: "wx", mode: 0o600, highWaterMark: HIGH_WATER_BYTES });
    this.#file.on("error", (error) => {
      this.#error ??= new ServerError("storage_unavailable", `the upload cannot be written now: ${error.message}`);
    });
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Adds a chunk. Returns the error if the body is too large or cannot be written. */
  add(chunk: Uint8Array): ServerError | null {
    if (this.#error !== null) return this.#error;
    if (this.#sizeBytes + chunk.byteLength > MAX_BODY_BYTES) return tooLarge("more");
    this.#sizeBytes += chunk.byteLength;
    this.#file.write(chunk);
    return null;
  }

  /** Returns a promise that resolves when more chunks may be added and never rejects; null if they may be added now. */
  drained(): Promise<void> | null {
    if (!this.#file.writableNeedDrain) return null;
    return new Promise((resolve) => {
      const end = (): void => {
        this.#file.off("drain", end).off("close", end);
        resolve();
      };
      this.#file.on("drain", end).on("close", end);
    });
  }

  /** Resolves when all bytes are in the file: to null, or to the error if they could not be written. */
  async end(): Promise<ServerError | null> {
    this.#file.end();
    await finished(this.#file).catch(() => {});
    return this.#error;
  }

  /** Stops writing and deletes the file. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#count.leave(this.#client);
    const remove = (): void => rmSync(this.path, { force: true });
    if (this.#file.closed) remove();
    else {
      this.#file.once("close", remove);
      this.#file.destroy();
    }
  }
}
