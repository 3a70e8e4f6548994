// Finished chunks: the record next to a partly written file, from which an interrupted conversion resumes. Chunks are recorded after their
// bytes are on disk.
import { readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { z } from "zod";

const recordType = z.object({
  /** Key of the conversion (source, types and code). A record with another key is ignored. */
  key: z.string(),
  /** One bit for each chunk, in base64. */
  done: z.string(),
});

/** Interval in ms at which the record is written. */
const recordMs = 2000;

export class FinishedChunks {
  readonly #path: string;
  readonly #key: string;
  readonly #bits: Uint8Array;
  /** Whether the target file already has the recorded chunks, so that the conversion resumes. */
  readonly isContinued: boolean;
  #recordedAt = performance.now();
  #writing: Promise<void> | null = null;

  private constructor(path: string, key: string, bits: Uint8Array, isContinued: boolean) {
    this.#path = path;
    this.#key = key;
    this.#bits = bits;
    this.isContinued = isContinued;
  }

  /**
   * Opens the record of the file at `partial`, which has `fileBytes` bytes. No chunk is finished if the file is missing, or the
   * record is missing or has another key or number of chunks; such a record is removed.
   */
  static async open(partial: string, key: string, chunks: number, fileBytes: number): Promise<FinishedChunks> {
    const path = `${partial}.json`;
    const bytes = Math.ceil(chunks / 8);
    try {
      const record = recordType.parse(JSON.parse(await readFile(path, "utf8")));
      const bits = new Uint8Array(Buffer.from(record.done, "base64"));
      const isSame = record.key === key && bits.length === bytes && (await stat(partial)).size === fileBytes;
      if (isSame) return new FinishedChunks(path, key, bits, true);
    } catch {
      // A missing record or file and a damaged record have the same effect: the conversion starts again.
    }
    await rm(path, { force: true });
    return new FinishedChunks(path, key, new Uint8Array(bytes), false);
  }

  has(index: number): boolean {
    return ((this.#bits[index >> 3] as number) & (1 << (index & 7))) !== 0;
  }

  /**
   * Marks a chunk as finished. If the last save is more than `recordMs` ago, calls `flush`, which writes the target's bytes to disk, and
   * then saves the record.
   */
  async add(index: number, flush: () => Promise<void>): Promise<void> {
    this.#bits[index >> 3] = (this.#bits[index >> 3] as number) | (1 << (index & 7));
    if (this.#writing !== null || performance.now() - this.#recordedAt < recordMs) return;
    await this.#record(flush);
  }

  /** Saves the record of all chunks that are finished now. */
  async save(flush: () => Promise<void>): Promise<void> {
    await this.#writing;
    await this.#record(flush);
  }

  async #record(flush: () => Promise<void>): Promise<void> {
    const bits = Buffer.from(this.#bits).toString("base64");
    this.#writing = this.#write(bits, flush).finally(() => {
      this.#writing = null;
      this.#recordedAt = performance.now();
    });
    await this.#writing;
  }

  async remove(): Promise<void> {
    await this.#writing;
    await rm(this.#path, { force: true });
  }

  async #write(done: string, flush: () => Promise<void>): Promise<void> {
    await flush();
    const written = `${this.#path}.new`;
    await writeFile(written, JSON.stringify({ key: this.#key, done }));
    await rename(written, this.#path);
  }
}
