// Line file: appends lines to a file in order, without waiting for the disk. The queue is bounded. Lost
// lines are counted and reported.
import { type FileHandle, open } from "node:fs/promises";
import { resolvesWithin } from "../clock.ts";

export interface LineFileOptions {
  /** Maximum number of bytes of waiting lines, including the lines that are being written to the disk. */
  readonly maxWaitingBytes: number;
  /** Reports lost lines. Called at most once every few seconds, and at the end. */
  readonly onLost: (count: number, reason: string) => void;
  readonly reportEveryMs?: number;
}

const ownerOnly = 0o600;
const defaultReportEveryMs = 5000;
const defaultCloseDeadlineMs = 5000;

export class LineFile {
  readonly #file: FileHandle;
  readonly #options: LineFileOptions;
  #lines: string[] = [];
  #waitingBytes = 0;
  /** Number of lines of the write in progress. */
  #underWayCount = 0;
  #writing: Promise<void> | null = null;
  /** True if the last write may have written only a part of a line. */
  #isTorn = false;
  #lostCount = 0;
  #lostReason = "";
  #report: NodeJS.Timeout | undefined;

  private constructor(file: FileHandle, options: LineFileOptions) {
    this.#file = file;
    this.#options = options;
  }

  /** Opens a file for appending. A new file is accessible only to its owner. Rejects with the error of the file system. */
  static async open(path: string, options: LineFileOptions): Promise<LineFile> {
    return new LineFile(await open(path, "a", ownerOnly), options);
  }

  append(line: string): void {
    const bytes = Buffer.byteLength(line) + 1;
    if (this.#waitingBytes + bytes > this.#options.maxWaitingBytes) {
      this.#lose(1, "the disk does not keep up");
      return;
    }
    this.#lines.push(line);
    this.#waitingBytes += bytes;
    this.#writing ??= this.#writeAll();
  }

  /** Waits for pending writes until the deadline. Lines that remain are lost. Nothing may be appended after this call. */
  async close(deadlineMs: number = defaultCloseDeadlineMs): Promise<void> {
    await resolvesWithin(deadlineMs, Promise.resolve(this.#writing));
    const leftCount = this.#lines.length + this.#underWayCount;
    this.#lines = [];
    if (leftCount > 0) this.#lose(leftCount, "the program ended first");
    this.#tell();
    // Close only if no write is in progress. Closing would wait for a write that hangs.
    if (this.#writing === null) await this.#file.close();
  }

  async #writeAll(): Promise<void> {
    while (this.#lines.length > 0) {
      const lines = this.#lines;
      const bytes = this.#waitingBytes;
      this.#lines = [];
      this.#underWayCount = lines.length;
      try {
        await this.#file.appendFile(`${this.#isTorn ? "\n" : ""}${lines.join("\n")}\n`);
        this.#isTorn = false;
      } catch (error) {
        this.#isTorn = true;
        this.#lose(lines.length, error instanceof Error ? error.message : String(error));
      }
      this.#underWayCount = 0;
      this.#waitingBytes -= bytes;
    }
    this.#writing = null;
  }

  #lose(count: number, reason: string): void {
    this.#lostCount += count;
    this.#lostReason = reason;
    this.#report ??= setTimeout(() => this.#tell(), this.#options.reportEveryMs ?? defaultReportEveryMs).unref();
  }

  #tell(): void {
    clearTimeout(this.#report);
    this.#report = undefined;
    if (this.#lostCount > 0) this.#options.onLost(this.#lostCount, this.#lostReason);
    this.#lostCount = 0;
  }
}
