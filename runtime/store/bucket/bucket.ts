// Bucket: files as objects of an S3-compatible server. Bodies are streamed between disk and network. A request that fails with
// a temporary error is retried. Requests are signed with access keys from the environment. No error message contains the keys.
import { createWriteStream, openAsBlob } from "node:fs";
import { rm } from "node:fs/promises";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";
import { setTimeout as sleep } from "node:timers/promises";
import { S3mini, S3ServiceError } from "s3mini";
import { ServerError } from "../../errors.ts";
import { Gate } from "../../queues/gate.ts";
import { bucketAddress } from "./bucket-url.ts";

/** Time limit in ms of a request, including the transfer of its body. */
const REQUEST_MS = 120_000;
const TRIES = 4;
const FIRST_WAIT_MS = 200;
/** Maximum number of concurrent uploads and downloads. */
const MOST_BODIES = 8;
const PAGE_LENGTH = 1000;

export interface BucketKeys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

export interface BucketObject {
  readonly name: string;
  /** Time of the last change in milliseconds since 1970, by the clock of the S3 server. */
  readonly changedAt: number;
}

export class Bucket {
  readonly #client: S3mini;
  readonly #prefix: string;
  readonly #shown: string;
  readonly #bodies = new Gate(MOST_BODIES);

  /** Does not check the bucket; see `open`. */
  constructor(url: string, { accessKeyId, secretAccessKey }: BucketKeys) {
    const { endpoint, region, prefix } = bucketAddress(url);
    this.#client = new S3mini({ endpoint, region, accessKeyId, secretAccessKey, requestAbortTimeout: REQUEST_MS });
    this.#prefix = prefix;
    this.#shown = `${endpoint}/${prefix}`;
  }

  /** Checks that the bucket can be read. Throws config_invalid, or storage_unavailable if it cannot be reached or is not ready. */
  static async open(url: string, keys: BucketKeys): Promise<Bucket> {
    const bucket = new Bucket(url, keys);
    const refused = (code: "config_invalid" | "storage_unavailable", reason: string, cause?: unknown) => {
      const text = `files_url expects a bucket at ${bucket.#shown}: ${reason}; check the address and the keys`;
      return new ServerError(code, text, { param: "files_url", cause });
    };
    const page = await bucket.#client.listObjectsPaged("/", bucket.#prefix, 1).catch((error) => {
      throw refused(mayPass(error) ? "storage_unavailable" : "config_invalid", reasonOf(error), error);
    });
    if (page === null) throw refused("config_invalid", "there is no such bucket");
    return bucket;
  }

  /** Uploads the file at `path`, which has `bytes` bytes, as the object `name`. Throws storage_unavailable. */
  async put(name: string, path: string, bytes: number): Promise<void> {
    await this.#bodies.pass(() =>
      this.#repeated(async () => {
        const body = await openAsBlob(path);
        const reply = await this.#client.putObject(
          this.#prefix + name,
          body,
          "application/octet-stream",
          undefined,
          {},
          bytes,
        );
        await reply.body?.cancel();
      }),
    );
  }

  /**
   * Downloads an object to a new file at `path`. Returns false, and leaves no file, if there is no such object or it has less
   * than `bytes` bytes. Throws storage_unavailable, also if the object has more bytes.
   */
  async get(name: string, path: string, bytes: number): Promise<boolean> {
    const received = await this.#bodies
      .pass(() => this.#repeated(() => this.#receive(name, path, bytes)))
      .catch(async (error) => {
        await rm(path, { force: true });
        throw error;
      });
    if (received !== bytes) await rm(path, { force: true });
    return received === bytes;
  }

  /** Deletes an object. Throws storage_unavailable. */
  async remove(name: string): Promise<void> {
    await this.#repeated(() => this.#client.deleteObject(this.#prefix + name));
  }

  /** Yields all objects of this bucket and prefix. Throws storage_unavailable. */
  async *list(): AsyncGenerator<BucketObject> {
    let token: string | undefined;
    do {
      const page = await this.#repeated(() => this.#client.listObjectsPaged("/", this.#prefix, PAGE_LENGTH, token));
      for (const { Key, LastModified } of page?.objects ?? []) {
        yield { name: Key.slice(this.#prefix.length), changedAt: new Date(LastModified).getTime() };
      }
      token = page?.nextContinuationToken;
    } while (token !== undefined);
  }

  /** Downloads an object to a file. Returns the number of bytes written; null if there is no such object. */
  async #receive(name: string, path: string, bytes: number): Promise<number | null> {
    const reply = await this.#client.getObjectResponse(this.#prefix + name);
    if (reply?.body == null) return reply === null ? null : 0;
    let received = 0;
    const count = new Transform({
      transform(piece: Uint8Array, _, done) {
        received += piece.byteLength;
        // Fail at once if the object is larger than expected, so that the excess is not written to the disk.
        if (received > bytes) done(new ServerError("storage_unavailable", `an object has more than ${bytes} bytes`));
        else done(null, piece);
      },
    });
    await pipeline(Readable.fromWeb(reply.body as ReadableStream), count, createWriteStream(path, { mode: 0o600 }));
    return received;
  }

  /** Runs a request. Retries it after temporary errors (see mayPass). */
  async #repeated<T>(request: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries++) {
      try {
        return await request();
      } catch (error) {
        if (tries >= TRIES || !mayPass(error)) {
          const text = `the bucket at ${this.#shown} cannot be read or written now: ${reasonOf(error)}; try again soon`;
          throw new ServerError("storage_unavailable", text, { cause: error });
        }
        await sleep(FIRST_WAIT_MS * 2 ** (tries - 1) * (0.75 + Math.random() / 2));
      }
    }
  }
}

/** Returns whether an error may be temporary: a failure of the network, or a server that is busy (429) or broken (5xx). */
function mayPass(error: unknown): boolean {
  if (error instanceof S3ServiceError) return error.status >= 500 || error.status === 429;
  return !(error instanceof ServerError);
}

function reasonOf(error: unknown): string {
  if (error instanceof S3ServiceError) return `it answers ${error.status} ${error.serviceCode ?? ""}`.trimEnd();
  const { message, cause } = error as Error;
  const code = (cause as NodeJS.ErrnoException | undefined)?.code;
  return code === undefined ? message : `${message} (${code})`;
}
