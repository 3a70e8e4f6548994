// Stored files: the files of a checkpoint, opened when first read, and decoding of the numbers in them. Synchronous.
import { closeSync, openSync, readSync } from "node:fs";
import { ServerError } from "../../../runtime/errors.ts";
import { accessFailure } from "../../files/access-failure.ts";
import { type StoredRows, storedBytes } from "../../files/checkpoint/row-source.ts";
import { decoderOf } from "./stored-values.ts";

const bufferBytes = 2 ** 20;
const fetchAgain = "fetch the model again, then load it";

export class StoredFiles {
  readonly #paths: readonly string[];
  readonly #open = new Map<number, number>();
  readonly #buffer = new ArrayBuffer(bufferBytes);

  constructor(paths: readonly string[]) {
    this.#paths = paths;
  }

  /** Reads rows as F32 into `out` from `at` on. */
  read(source: StoredRows, first: number, count: number, out: Float32Array, at: number): void {
    this.readSpan(source, first * source.columns, count * source.columns, out, at);
  }

  /** Like read(), for `count` values from value `first` of the source on. */
  readSpan({ file, offset, type }: StoredRows, first: number, count: number, out: Float32Array, at: number): void {
    const size = storedBytes[type];
    const decode = decoderOf(type);
    const most = bufferBytes / size;
    for (let done = 0; done < count; done += most) {
      const values = Math.min(most, count - done);
      const bytes = new Uint8Array(this.#buffer, 0, values * size);
      this.readBytes(file, offset + (first + done) * size, bytes);
      decode(new DataView(this.#buffer, 0, values * size), values, out, at + done);
    }
  }

  /** Fills `into` with bytes of a file. Throws the errors of accessFailure, and `model_file_invalid` if the file has fewer. */
  readBytes(file: number, position: number, into: Uint8Array): void {
    for (let done = 0; done < into.length; ) {
      const read = this.#readSome(file, position + done, into.subarray(done));
      if (read === 0) throw this.#unreadable(file, "it became shorter");
      done += read;
    }
  }

  close(): void {
    for (const descriptor of this.#open.values()) closeSync(descriptor);
    this.#open.clear();
  }

  #readSome(file: number, position: number, into: Uint8Array): number {
    try {
      return readSync(this.#descriptor(file), into, 0, into.length, position);
    } catch (error) {
      if (error instanceof ServerError) throw error;
      const problem = `${this.#paths[file]} cannot be read any more (${(error as NodeJS.ErrnoException).code})`;
      throw accessFailure(error, problem, fetchAgain);
    }
  }

  #descriptor(file: number): number {
    const known = this.#open.get(file);
    if (known !== undefined) return known;
    const descriptor = openSync(this.#paths[file] as string, "r");
    this.#open.set(file, descriptor);
    return descriptor;
  }

  #unreadable(file: number, reason: string): ServerError {
    return new ServerError(
      "model_file_invalid",
      `${this.#paths[file]} cannot be read any more (${reason}); ${fetchAgain}`,
    );
  }
}
