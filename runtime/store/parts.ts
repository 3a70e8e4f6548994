// Parts of a store's entries, kept in chunks so that a slice reads only what it needs. A large part is written ahead in several
// transactions, with other work of the thread in between; the transaction of its entry then only claims it.
import { randomInt } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";
import { pack, unpack } from "msgpackr";
import { ServerError } from "../errors.ts";
import type { Part, PartChanges } from "./store.ts";
import type { Table, TableKey, Tables } from "./tables.ts";

/** 16 pages of 4 KiB, less what LMDB adds. */
const CHUNK_BYTES = 16 * 4096 - 16;
/** Most bytes written in one transaction: some 20 ms on a slow disk. */
export const STEP_BYTES = 64 * CHUNK_BYTES;
/** A part that was written ahead and is not claimed after this time is removed: its writer is gone. */
const UNCLAIMED_MS = 10 * 60_000;

export const partTables = ["chunks", "unclaimed", "part-ids"] as const;

/** Most parts that one sweep looks at. */
const MOST_UNCLAIMED = 256;

const nextIdKey: TableKey = ["next"];
/**
 * A store that has had no part takes its first number at random below this one. Tables in memory are empty again after a restart,
 * and a reader that still has part numbers of the store before must not be given bytes of other parts.
 */
const FIRST_IDS = 2 ** 40;

/** A part on its way into the store: its bytes, or where they lie already. */
export type Prepared = { readonly bytes: Uint8Array } | { readonly written: Part };

/** The parts of one change by their names; null removes a part. */
export type PreparedParts = ReadonlyMap<string, Prepared | null>;

/** Bytes that are still to be written with the transaction. */
export function bytesToWrite(prepared: PreparedParts): number {
  let sum = 0;
  for (const part of prepared.values()) if (part !== null && "bytes" in part) sum += part.bytes.byteLength;
  return sum;
}

export function preparedBytes(part: Prepared): number {
  return "bytes" in part ? part.bytes.byteLength : part.written.bytes;
}

export class Parts {
  readonly #tables: Tables;
  readonly #now: () => number;
  /** [part, number of the chunk] to the chunk. */
  readonly #chunks: Table;
  /** [part] of each part that was written ahead to its Unclaimed record. */
  readonly #unclaimed: Table;
  readonly #ids: Table;

  constructor(tables: Tables, now: () => number) {
    this.#tables = tables;
    this.#now = now;
    this.#chunks = tables.table("chunks");
    this.#unclaimed = tables.table("unclaimed");
    this.#ids = tables.table("part-ids");
  }

  /** Makes parts ready for a transaction. What is large is in the store when this settles; see `abandon`. */
  async prepare(changes: PartChanges): Promise<PreparedParts> {
    const prepared = new Map<string, Prepared | null>();
    let room = STEP_BYTES;
    try {
      for (const [name, bytes] of Object.entries(changes)) {
        if (bytes === null) prepared.set(name, null);
        else if (bytes.byteLength > room) prepared.set(name, { written: await this.#writeAhead(bytes) });
        else {
          room -= bytes.byteLength;
          prepared.set(name, { bytes });
        }
      }
    } catch (error) {
      this.abandon(prepared);
      throw error;
    }
    return prepared;
  }

  /** Removes what was written ahead and is not claimed. Where that fails, `sweep` does it later. */
  abandon(prepared: PreparedParts): void {
    for (const part of prepared.values()) {
      if (part !== null && "written" in part) this.#tryToDrop(part.written.id);
    }
  }

  // In a transaction:

  /** Throws storage_unavailable where a part that was written ahead is gone. */
  check(prepared: Prepared): void {
    if ("bytes" in prepared || this.#unclaimed.get([prepared.written.id]) !== undefined) return;
    throw new ServerError("storage_unavailable", "what was to be kept took too long to write; try again");
  }

  /** Puts a prepared part into the store. */
  place(prepared: Prepared): Part {
    if ("written" in prepared) {
      this.#unclaimed.remove([prepared.written.id]);
      return prepared.written;
    }
    const part = { id: this.#newId(), bytes: prepared.bytes.byteLength };
    this.#write(part.id, prepared.bytes, 0, part.bytes);
    return part;
  }

  remove({ id, bytes }: Part): void {
    for (let n = 0; n * CHUNK_BYTES < bytes; n++) this.#chunks.remove([id, n]);
  }

  // In a view:

  read(part: number, from: number, to: number): Uint8Array | null {
    const slice = new Uint8Array(to - from);
    for (let at = from; at < to; ) {
      const n = Math.floor(at / CHUNK_BYTES);
      const start = n * CHUNK_BYTES;
      const found = this.#chunks.get([part, n])?.subarray(at - start, to - start);
      if (found === undefined || found.byteLength === 0) return null;
      slice.set(found, at - from);
      at += found.byteLength;
    }
    return slice;
  }

  /** Removes what was written ahead and nobody has claimed. */
  sweep(): void {
    const keys = this.#tables.view(() => this.#unclaimed.first(MOST_UNCLAIMED));
    for (const [id] of keys) this.#tables.transaction(() => this.#drop(id as number, this.#now() - UNCLAIMED_MS));
  }

  async #writeAhead(bytes: Uint8Array): Promise<Part> {
    const part = this.#tables.transaction(() => {
      const id = this.#newId();
      const unclaimed: Unclaimed = { at: this.#now(), bytes: bytes.byteLength };
      this.#unclaimed.put([id], pack(unclaimed));
      return { id, bytes: bytes.byteLength };
    });
    try {
      for (let from = 0; from < bytes.byteLength; from += STEP_BYTES) {
        await nextTurn();
        this.#tables.transaction(() => this.#write(part.id, bytes, from, from + STEP_BYTES));
      }
    } catch (error) {
      this.#tryToDrop(part.id);
      throw error;
    }
    return part;
  }

  #write(part: number, bytes: Uint8Array, from: number, to: number): void {
    const end = Math.min(to, bytes.byteLength);
    for (let at = from; at < end; at += CHUNK_BYTES) {
      this.#chunks.put([part, at / CHUNK_BYTES], bytes.subarray(at, at + CHUNK_BYTES));
    }
  }

  #newId(): number {
    const found = this.#ids.get(nextIdKey);
    const id = found === undefined ? randomInt(FIRST_IDS) : (unpack(found) as number);
    this.#ids.put(nextIdKey, pack(id + 1));
    return id;
  }

  #tryToDrop(id: number): void {
    try {
      this.#tables.transaction(() => this.#drop(id));
    } catch {
      // A full disk may have no room for the removal either.
    }
  }

  /** Removes a part that is unclaimed, if it was begun before then. */
  #drop(id: number, before = Number.POSITIVE_INFINITY): void {
    const found = this.#unclaimed.get([id]);
    if (found === undefined) return;
    const { at, bytes } = unpack(found) as Unclaimed;
    if (at >= before) return;
    this.remove({ id, bytes });
    this.#unclaimed.remove([id]);
  }
}

interface Unclaimed {
  /** When it was begun. */
  readonly at: number;
  readonly bytes: number;
}
