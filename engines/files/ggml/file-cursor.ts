// File cursor: reads small values of a large file one after another, through a window of fixed size.
import type { FileHandle } from "node:fs/promises";
import { truncatedFile } from "../gguf/invalid-file.ts";

const windowBytes = 64 * 1024;

export class FileCursor {
  /** Position in the file of the next byte to read. */
  position = 0;
  readonly path: string;
  readonly fileBytes: number;
  readonly #file: FileHandle;
  readonly #window = Buffer.alloc(windowBytes);
  #start = 0;
  #length = 0;

  constructor(file: FileHandle, fileBytes: number, path: string) {
    this.#file = file;
    this.fileBytes = fileBytes;
    this.path = path;
  }

  /** Returns a copy of the next bytes, at most 64 KiB. Throws `model_file_invalid` if the file ends before. */
  async bytes(count: number): Promise<Buffer> {
    const from = this.position - this.#start;
    if (from < 0 || from + count > this.#length) await this.#fill();
    const start = this.position - this.#start;
    if (start + count > this.#length) throw truncatedFile(this.path, this.fileBytes);
    this.position += count;
    return Buffer.from(this.#window.subarray(start, start + count));
  }

  async u32(): Promise<number> {
    return (await this.bytes(4)).readUInt32LE();
  }

  async #fill(): Promise<void> {
    this.#start = this.position;
    const { bytesRead } = await this.#file.read(this.#window, 0, windowBytes, this.position);
    this.#length = bytesRead;
  }
}
