// Parts of a store's entries, kept in chunks so that reading a slice of a part loads only the chunks that it needs. A large
// part is written in advance, in several transactions, so that the thread can do other work between them. The transaction that
// writes the entry then only marks the part as used.
import assert from "node:assert";
import { randomInt } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";
import { pack, unpack } from "msgpackr";
import { ServerError } from "../errors.ts";
import type { Part } from "./store.ts";
import type { Table, TableKey, Tables } from "./tables.ts";

/** Size of a chunk: 16 pages of 4 KiB, less the bytes that LMDB adds. */
const CHUNK_BYTES = 16 * 4096 - 16;
/** Maximum number of bytes written in one transaction: about 20 ms on a slow disk. */
export const STEP_BYTES = 64 * CHUNK_BYTES;
/** Time in ms after which a part that was written in advance but not added to an entry is removed, because its writer is gone. */
const UNCLAIMED_MS = 10 * 60_000;

/** Maximum number of parts that one call of `sweep` checks, of those written in advance and not added to an entry. */
const MOST_UNCLAIMED = 256;

const nextIdKey: TableKey = ["next"];
/**
 * Upper bound of the first part id of a new store. The first id is random, because tables in memory are empty after a restart,
 * and part ids that a reader still has from before the restart must not match new parts.
 */
const FIRST_IDS = 2 ** 40;

/** The parts of an entry to write. Each value is new bytes, or a part of the version that the entry replaces. */
export type NewParts = Readonly<Record<string, Uint8Array | Part>>;

/** A part that is being stored: bytes to write, a part written in advance, or an existing part that is reused. */
export type Prepared = { readonly bytes: Uint8Array } | { readonly written: Part } | { readonly reused: Part };

export type PreparedParts = ReadonlyMap<string, Prepared>;

/** Returns the number of bytes that the transaction still has to write. */
export function bytesToWrite(prepared: PreparedParts): number {
  let sum = 0;
  for (const part of prepared.values()) if ("bytes" in part) sum += part.bytes.byteLength;
  return sum;
}

export function preparedBytes(part: Prepared): number {
  if ("bytes" in part) return part.bytes.byteLength;
  return "written" in part ? part.written.bytes : part.reused.bytes;
}

export class Parts {
  readonly #tables: Tables;
  readonly #now: () => number;
  /** Maps [id of the part, number of the chunk] to the chunk. */
  readonly #chunks: Table;
  /** Maps the id of each part that was written in advance, but is in no entry yet, to its Unclaimed record. */
  readonly #unclaimed: Table;
  readonly #ids: Table;

  constructor(tables: Tables, now: () => number) {
    this.#tables = tables;
    this.#now = now;
    this.#chunks = tables.table("chunks");
    this.#unclaimed = tables.table("unclaimed");
    this.#ids = tables.table("part-ids");
  }

  /** Prepares parts for a transaction. Large parts are in the store when this resolves; see `abandon`. */
  async prepare(parts: NewParts): Promise<PreparedParts> {
    const prepared = new Map<string, Prepared>();
    let room = STEP_BYTES;
    try {
      for (const [name, part] of Object.entries(parts)) {
        if (!(part instanceof Uint8Array)) prepared.set(name, { reused: part });
        else if (part.byteLength > room) prepared.set(name, { written: await this.#writeAhead(part) });
        else {
          room -= part.byteLength;
          prepared.set(name, { bytes: part });
        }
      }
    } catch (error) {
      this.abandon(prepared);
      throw error;
    }
    return prepared;
  }

  /** Removes parts that were written in advance but not added to an entry. If that fails, `sweep` removes them later. */
  abandon(prepared: PreparedParts): void {
    for (const part of prepared.values()) if ("written" in part) this.#tryToDrop(part.written.id);
  }

  // The following methods must be called in a transaction:

  /** Throws storage_unavailable if a part that was written in advance is gone. `old`: the parts that may be reused. */
  check(prepared: Prepared, old: readonly Part[]): void {
    if ("reused" in prepared)
      assert(
        old.some(({ id }) => id === prepared.reused.id),
        "a part of another entry",
      );
    else if ("written" in prepared && this.#unclaimed.get([prepared.written.id]) === undefined) {
      throw new ServerError("storage_unavailable", "the entry took too long to write; try again");
    }
  }

  /** Stores a prepared part. */
  place(prepared: Prepared): Part {
    if ("reused" in prepared) return prepared.reused;
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

  // The following methods must be called in a read transaction:

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

  /** Removes parts that were written in advance at least UNCLAIMED_MS ago but never added to an entry. */
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
      // The error is ignored, because a full disk may not have room for the removal either.
    }
  }

  /** Removes a part that was written in advance but not added to an entry, if its writing began before the time `before`. */
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
  /** Time at which the writing of the part began, in milliseconds since 1970. */
  readonly at: number;
  readonly bytes: number;
}
