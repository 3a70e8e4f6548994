// Partial file: a file that is fetched in parts, `<blob>.partial`. It has its full length from the start. A second file
// records the progress of each part, so that a download can resume after any interruption. The name does not end in
// `.incomplete`, because the hub's Python library appends to files with this ending and treats full length as complete.
// Called by blob-download.ts, which holds the lock.
import { type FileHandle, open, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { z } from "zod";

export interface Part {
  readonly start: number;
  readonly end: number;
  /** Number of bytes, counted from `start`, that have been written. */
  doneBytes: number;
}

const recordType = z.object({ sizeBytes: z.int(), partBytes: z.int().positive(), done: z.array(z.int().min(0)) });

export class PartialFile {
  readonly path: string;
  readonly parts: readonly Part[];
  /** true: an earlier attempt has already fetched some of the bytes. */
  readonly isResumed: boolean;
  readonly #file: FileHandle;
  readonly #partBytes: number;
  readonly #saveMs: number;
  #savedAt = Date.now();
  #saving: Promise<void> = Promise.resolve();

  private constructor(path: string, file: FileHandle, parts: readonly Part[], partBytes: number, saveMs: number) {
    this.path = path;
    this.parts = parts;
    this.isResumed = parts.some(({ doneBytes }) => doneBytes > 0);
    this.#file = file;
    this.#partBytes = partBytes;
    this.#saveMs = saveMs;
  }

  /** Resumes an existing partial file, or creates one. */
  static async open(
    blob: string,
    sizeBytes: number,
    options: { readonly partBytes: number; readonly saveMs: number },
  ): Promise<PartialFile> {
    const path = partialPath(blob);
    const kept = await readParts(path, sizeBytes);
    const partBytes = kept?.partBytes ?? options.partBytes;
    const file = await open(path, kept === null ? "w+" : "r+");
    try {
      if (kept === null) await file.truncate(sizeBytes);
      return new PartialFile(path, file, kept?.parts ?? split(sizeBytes, partBytes, []), partBytes, options.saveMs);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  get doneBytes(): number {
    return this.parts.reduce((sum, { doneBytes }) => sum + doneBytes, 0);
  }

  /** Writes the next bytes of a part. Only one caller at a time may write a part. */
  async write(part: Part, bytes: Uint8Array): Promise<void> {
    for (let written = 0; written < bytes.length; ) {
      const position = part.start + part.doneBytes;
      const { bytesWritten } = await this.#file.write(bytes, written, bytes.length - written, position);
      written += bytesWritten;
      part.doneBytes += bytesWritten;
    }
    if (Date.now() - this.#savedAt >= this.#saveMs) await this.#save();
  }

  /** Saves the progress and closes the file. The next attempt resumes from the saved progress. */
  async close(): Promise<void> {
    await this.#save().finally(() => this.#file.close());
  }

  /** Flushes the content to disk and renames the file to its final name. */
  async finish(blob: string): Promise<void> {
    await this.#file.datasync();
    await this.#file.close();
    await rename(this.path, blob);
    await rm(recordPath(this.path), { force: true });
  }

  /** Closes the file and deletes the fetched bytes. */
  async discard(): Promise<void> {
    await this.#file.close();
    await rm(this.path, { force: true });
    await rm(recordPath(this.path), { force: true });
  }

  /**
   * Saves the progress. Saves run one at a time and replace the record by a rename, so the record is always valid, even
   * if the process is killed.
   */
  #save(): Promise<void> {
    this.#savedAt = Date.now();
    const saved = this.#saving.then(async () => {
      const done = this.parts.map(({ doneBytes }) => doneBytes);
      const sizeBytes = this.parts.at(-1)?.end ?? 0;
      const temporary = `${recordPath(this.path)}.tmp`;
      await writeFile(temporary, JSON.stringify({ sizeBytes, partBytes: this.#partBytes, done }));
      await rename(temporary, recordPath(this.path));
    });
    // A failed save does not prevent the next one.
    this.#saving = saved.catch(() => {});
    return saved;
  }
}

/** Returns the number of bytes that an interrupted download of a blob has left on disk. */
export async function partialBytes(blob: string, sizeBytes: number): Promise<number> {
  const kept = await readParts(partialPath(blob), sizeBytes);
  return kept?.parts.reduce((sum, { doneBytes }) => sum + doneBytes, 0) ?? 0;
}

function partialPath(blob: string): string {
  return `${blob}.partial`;
}

function recordPath(path: string): string {
  return `${path}.json`;
}

/** Returns the recorded parts; null if no valid record for this file exists. */
async function readParts(path: string, sizeBytes: number): Promise<{ parts: Part[]; partBytes: number } | null> {
  try {
    const record = recordType.parse(JSON.parse(await readFile(recordPath(path), "utf8")));
    const parts = split(sizeBytes, record.partBytes, record.done);
    const isSound =
      record.sizeBytes === sizeBytes &&
      record.done.length === parts.length &&
      parts.every(({ start, end, doneBytes }) => doneBytes <= end - start) &&
      (await stat(path)).size === sizeBytes;
    return isSound ? { parts, partBytes: record.partBytes } : null;
  } catch {
    // A missing record and a damaged one have the same effect: the download starts over.
    return null;
  }
}

function split(sizeBytes: number, partBytes: number, done: readonly number[]): Part[] {
  return Array.from({ length: Math.ceil(sizeBytes / partBytes) }, (_, index) => {
    const start = index * partBytes;
    return { start, end: Math.min(sizeBytes, start + partBytes), doneBytes: done[index] ?? 0 };
  });
}
