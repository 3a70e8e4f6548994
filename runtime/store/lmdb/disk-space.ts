// Disk space: reserves space at the end of a database file before a transaction changes anything. Without it, a commit on a
// full disk would end the process, because the LMDB binding (lmdb 3.5.6) writes its message about the failed write into a
// buffer that is too small. The space is reserved by appending zeros to the file; LMDB then writes its new pages there. Free
// pages inside the file are not counted, because LMDB does not report their number.
import { closeSync, fstatSync, openSync, writeSync } from "node:fs";
import { newestMeta } from "./database-file.ts";

/** Number of bytes by which the file grows at a time. */
const growthBytes = 1024 * 1024;
/** Number of pages reserved once for each transaction: for the upper levels of all trees, and for the list of free pages. */
const basePages = 96;
/** Number of pages reserved for each put in addition to its value: a leaf, and the pages that a split of the leaf adds. */
const putPages = 4;
/**
 * Number of removals in a transaction for which one page each is reserved. Further removals are those of the chunks in which a
 * large value is stored. The keys of these chunks are adjacent, so many of them are on one page.
 */
const singleRemovals = 64;
/** Assumed minimum number of adjacent chunk keys on one page: after singleRemovals, one page is reserved per this many removals. */
const neighbours = 16;
/**
 * Number of pages that are reserved for transactions that remove something, so that entries can be removed even if the disk is
 * full.
 */
const removalPages = 512;

/**
 * Reserves the disk space of one write transaction at a time. The methods must be called during the transaction, because its
 * lock excludes other processes. They throw the error of the file system.
 */
export class LmdbSpace {
  readonly #file: number;
  #pageSize = 4096;
  /** Number of unused pages at the end of the file that the transaction has not reserved yet. */
  #pages = 0;
  #removals = 0;

  constructor(path: string) {
    this.#file = openSync(path, "r+");
  }

  /** Begins a transaction: counts the unused pages at the end of the file. Returns the number of the last commit. */
  begin(): number {
    const newest = newestMeta(this.#file);
    this.#pageSize = newest.pageSize;
    this.#pages = Math.floor(fstatSync(this.#file).size / newest.pageSize) - newest.pages - basePages;
    this.#removals = 0;
    return newest.commit;
  }

  /**
   * Reserves space for a value of `bytes` bytes. A value of at most one page that is written after a removal counts as part of
   * the removal, so it may use the pages reserved for removals.
   */
  take(bytes: number): void {
    const isOfRemoval = this.#removals > 0 && bytes <= this.#pageSize;
    this.#take(putPages + Math.ceil(bytes / this.#pageSize), isOfRemoval ? 0 : removalPages);
  }

  /** Reserves space for the removal of a key. */
  takeRemoval(): void {
    this.#removals++;
    const writes = this.#removals <= singleRemovals || this.#removals % neighbours === 0;
    this.#take(writes ? 1 : 0, 0);
  }

  close(): void {
    try {
      closeSync(this.#file);
    } catch {
      // The error is ignored, because the file is no longer used.
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
