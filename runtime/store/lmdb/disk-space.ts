// Disk space of a database file ahead of its pages. Without it, a commit on a full disk ends the process: the binding (lmdb 3.5.6)
// writes its message about the failed write into a buffer that is too small. So zeros are written behind the pages before a
// transaction changes anything, and their pages are what LMDB can take. Free pages in the file are not counted, because LMDB
// does not tell their number.
import { closeSync, fstatSync, openSync, writeSync } from "node:fs";
import { newestMeta } from "./database-file.ts";

/** The file grows by steps of this many bytes. */
const growthBytes = 1024 * 1024;
/** Pages that a transaction may write once: the upper levels of all trees, and the list of free pages. */
const basePages = 96;
/** Pages that a put may write beside its value: a leaf, and what it splits. */
const putPages = 4;
/** Removals of a transaction that may each write a page. Further ones are those of a part's chunks, whose keys are neighbours. */
const singleRemovals = 64;
/** Number of neighbours on a page, at least. */
const neighbours = 16;
/** Pages that only transactions which remove something may take, so that a full disk can be cleared. */
const removalPages = 512;

/** The methods are called during a write transaction, whose lock excludes other processes. They throw the error of the file system. */
export class LmdbSpace {
  readonly #file: number;
  #pageSize = 4096;
  /** Pages of the file that the transaction cannot have taken yet. */
  #pages = 0;
  #removals = 0;

  constructor(path: string) {
    this.#file = openSync(path, "r+");
  }

  /** Begins a transaction. */
  begin(): void {
    const newest = newestMeta(this.#file);
    this.#pageSize = newest.pageSize;
    this.#pages = Math.floor(fstatSync(this.#file).size / newest.pageSize) - newest.pages - basePages;
    this.#removals = 0;
  }

  /** Makes space for a value of so many bytes. What removals write about themselves is small. */
  take(bytes: number): void {
    const isOfRemoval = this.#removals > 0 && bytes <= this.#pageSize;
    this.#take(putPages + Math.ceil(bytes / this.#pageSize), isOfRemoval ? 0 : removalPages);
  }

  /** Makes space for the removal of a key. */
  takeRemoval(): void {
    this.#removals++;
    const writes = this.#removals <= singleRemovals || this.#removals % neighbours === 0;
    this.#take(writes ? 1 : 0, 0);
  }

  close(): void {
    try {
      closeSync(this.#file);
    } catch {
      // The file system closed it.
    }
  }

  #take(pages: number, spare: number): void {
    while (this.#pages < pages + spare) {
      const { size } = fstatSync(this.#file);
      const written = writeSync(this.#file, Buffer.alloc(growthBytes), 0, growthBytes, size);
      this.#pages += Math.floor(written / this.#pageSize);
    }
    this.#pages -= pages;
  }
}
