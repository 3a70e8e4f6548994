// Redis store: the store interface over Redis or Valkey, shared by any number of replicas. Each read and each write is one Lua
// script, so it is atomic and needs one round trip. Each part is a separate Redis string and is read in pieces. A large part is
// written in pieces before its entry, so that Redis can serve other clients between the pieces. The script that writes the
// entry then only refers to the part.
import assert from "node:assert";
import { randomInt } from "node:crypto";
import { pack, unpack } from "msgpackr";
import { ServerError } from "../../errors.ts";
import { Gate } from "../../queues/gate.ts";
import type {
  Entry,
  KeptEntry,
  ListPage,
  ListRequest,
  NewestPage,
  NewestRequest,
  NextEntry,
  Part,
  Store,
  StoreLimits,
  WatchListener,
  WatchTarget,
} from "../store.ts";
import type { Argument, RedisConnection, Value } from "./redis-connection.ts";
import { evictScript, getScript, listScript, newestScript, type Script, writeScript } from "./scripts.ts";

/** Maximum total size in bytes of the parts that are sent in the command that writes the entry. */
const INLINE_BYTES = 2 ** 20;
/** Size in bytes of the pieces in which large parts are written ahead, and in which all parts are read. */
const PIECE_BYTES = 2 ** 20;
/**
 * Maximum number of pieces that are read concurrently. Redis sends them one after another, but the time limit of each piece
 * begins with its request. With more concurrent reads, the last pieces would exceed the limit on a slow connection.
 */
const READ_PIECES = 2;
/** Maximum size in bytes of a piece that is read without waiting for other reads; it does not count towards READ_PIECES. */
const SHORT_BYTES = 64 * 1024;
/** Time in ms after which a part is removed that was written ahead but not added to an entry, because its writer is gone. */
const UNCLAIMED_MS = 10 * 60_000;
/** Time in ms for which replaced and removed parts stay readable, because reading an entry takes several round trips. */
const REPLACED_MS = 10_000;

/** Metadata of an entry, as the scripts store them in the hash `m`; see scripts.ts for the fields. */
interface Metadata {
  readonly v: string;
  readonly b: number;
  readonly x: number | false;
  readonly s: string;
}

interface Content<Head> {
  readonly head: Head;
  readonly parts: Readonly<Record<string, Part>>;
}

/**
 * The parts of an entry to write: all parts, parts sent with the entry, parts written ahead, and parts reused from the previous
 * version.
 */
interface Prepared {
  readonly parts: Readonly<Record<string, Part>>;
  readonly inline: readonly (readonly [id: number, bytes: Uint8Array])[];
  readonly ahead: readonly Part[];
  readonly reused: readonly Part[];
}

export interface RedisStoreOptions {
  /** Returns milliseconds since 1970. By default, scripts use the clock of the Redis server. */
  readonly now?: () => number;
  readonly replacedMs?: number;
}

export class RedisStore<Head> implements Store<Head> {
  readonly #connection: RedisConnection;
  readonly #prefix: string;
  readonly #limits: StoreLimits;
  readonly #now: () => number | "";
  readonly #replacedMs: number;
  readonly #watches = new Set<() => void>();
  readonly #pending = new Set<Promise<unknown>>();
  readonly #reads = new Gate(READ_PIECES);
  #tidying: Promise<void> | null = null;
  #isClosing = false;

  /** Only one store of the same name may be open in a process. The caller closes the connection. */
  constructor(connection: RedisConnection, name: string, limits: StoreLimits, options: RedisStoreOptions = {}) {
    this.#connection = connection;
    this.#prefix = `{troupe}:${name}:`;
    this.#limits = limits;
    this.#now = options.now ?? (() => "");
    this.#replacedMs = options.replacedMs ?? REPLACED_MS;
  }

  async get(key: string): Promise<KeptEntry<Head> | null> {
    const found = (await this.#run(getScript, [key, this.#now(), this.#limits.maxAgeMs])) as readonly Buffer[] | null;
    return found === null ? null : this.#entryOf(found[0] as Buffer, found[1] as Buffer);
  }

  async read(part: number, from: number, to: number): Promise<Uint8Array | null> {
    if (to <= from) return new Uint8Array(0);
    // Copy the bytes: the Redis client's buffers may be views of a larger buffer, but the result must have its own buffer,
    // because it may be transferred to another thread.
    const bytes = new Uint8Array(to - from);
    for (let at = from; at < to; at += PIECE_BYTES) {
      const end = Math.min(to, at + PIECE_BYTES);
      const get = () => this.#connection.command("GETRANGE", this.#partKey(part), at, end - 1) as Promise<Buffer>;
      const piece = end - at <= SHORT_BYTES ? await get() : await this.#reads.pass(get);
      if (piece.byteLength < end - at) return null;
      bytes.set(piece, at - from);
    }
    return bytes;
  }

  async list({ prefix = "", cursor, limit }: ListRequest): Promise<ListPage<Head>> {
    const args = [prefix, cursor ?? "", limit, this.#now(), this.#limits.maxAgeMs];
    const [next, ...rows] = (await this.#run(listScript, args)) as readonly Buffer[];
    const entries: (KeptEntry<Head> & { readonly key: string })[] = [];
    for (let i = 0; i < rows.length; i += 3) {
      entries.push({ ...this.#entryOf(rows[i + 1] as Buffer, rows[i + 2] as Buffer), key: String(rows[i]) });
    }
    const text = String(next);
    return { entries, cursor: text === "" ? null : text };
  }

  async newest({ before, limit }: NewestRequest): Promise<NewestPage<Head>> {
    const args = [before?.born ?? "", before?.key ?? "", limit, this.#now(), this.#limits.maxAgeMs];
    const rows = (await this.#run(newestScript, args)) as readonly Buffer[];
    const entries: (KeptEntry<Head> & { readonly key: string })[] = [];
    let last: NewestPage<Head>["next"] = null;
    for (let i = 0; i < rows.length; i += 4) {
      const key = String(rows[i]);
      last = { born: Number(String(rows[i + 1])), key };
      const [metadata, content] = [rows[i + 2] as Buffer, rows[i + 3] as Buffer];
      if (metadata.byteLength > 0) entries.push({ ...this.#entryOf(metadata, content), key });
    }
    return { entries, next: rows.length < 4 * limit ? null : last };
  }

  async put(key: string, entry: Entry<Head>): Promise<void> {
    await this.#write("put", key, "any", entry);
  }

  async delete(key: string): Promise<boolean> {
    return await this.#write("delete", key, "any", null);
  }

  async compareAndSet(key: string, expected: number | null, next: NextEntry<Head> | null): Promise<boolean> {
    return await this.#write(next === null ? "delete" : "set", key, expected === null ? "" : String(expected), next);
  }

  watch(target: WatchTarget, listener: WatchListener): () => void {
    if (!this.#connection.isConnected) {
      throw new ServerError("storage_unavailable", "the shared state cannot be watched now; try again soon");
    }
    const isWatched = (key: string): boolean => ("key" in target ? key === target.key : key.startsWith(target.prefix));
    const channel = `${this.#prefix}changes`;
    const ends = [
      this.#connection.subscribe(channel, (key) => isWatched(key) && listener(key)),
      // Changes may have been missed while the connection was lost.
      this.#connection.onResubscribed(() => listener(null)),
    ];
    const stop = (): void => {
      this.#watches.delete(stop);
      for (const end of ends) end();
    };
    this.#watches.add(stop);
    return stop;
  }

  async sweep(): Promise<void> {
    await this.#tidy();
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    for (const stop of this.#watches) stop();
    await Promise.allSettled([...this.#pending, this.#tidying]);
  }

  async #write(
    op: "put" | "set" | "delete",
    key: string,
    expected: string,
    next: NextEntry<Head> | null,
  ): Promise<boolean> {
    const writing = this.#writeNow(op, key, expected, next);
    this.#pending.add(writing);
    try {
      return await writing;
    } finally {
      this.#pending.delete(writing);
    }
  }

  async #writeNow(op: string, key: string, expected: string, next: NextEntry<Head> | null): Promise<boolean> {
    const { maxAgeMs, maxEntries, maxBytes } = this.#limits;
    const common = [op, key, this.#now(), expected, maxAgeMs, maxEntries, maxBytes, this.#replacedMs];
    if (next === null) return isDone(await this.#run(writeScript, common));
    const prepared = this.#prepare(next);
    const bytes = this.#checkedSize(next.head, prepared.parts);
    const ahead = prepared.ahead.map((part) => part.id);
    try {
      if (ahead.length > 0) await this.#writeAhead(next.parts, prepared);
      const reply = await this.#run(writeScript, [
        ...common,
        pack({ head: next.head, parts: prepared.parts } satisfies Content<Head>),
        next.share,
        next.expiresAt === null || next.expiresAt === undefined ? "" : Math.round(next.expiresAt + this.#clockAheadMs),
        bytes,
        prepared.inline.length,
        ...prepared.inline.flat(),
        prepared.ahead.length,
        ...prepared.ahead.flatMap((part) => [part.id, part.bytes]),
        ...prepared.reused.map(({ id }) => id),
      ]);
      if (isDone(reply)) ahead.length = 0;
      if ((reply as readonly number[])[1] === 1) this.#tidy().catch(() => {});
      return isDone(reply);
    } catch (error) {
      assert(!/PARTOTHER/.test(String(error)), "a part of another entry");
      throw error;
    } finally {
      // Let the parts that were written ahead for a refused write expire. If the connection is lost, leave them unchanged:
      // perhaps only the reply was lost, and the parts belong to the entry. Otherwise, they expire anyway.
      if (ahead.length > 0 && this.#connection.isConnected) {
        for (const id of ahead) this.#connection.command("PEXPIRE", this.#partKey(id), UNCLAIMED_MS).catch(() => {});
      }
    }
  }

  #prepare({ parts }: NextEntry<Head>): Prepared {
    const places: Record<string, Part> = {};
    const inline: [number, Uint8Array][] = [];
    const [ahead, reused]: [Part[], Part[]] = [[], []];
    let room = INLINE_BYTES;
    for (const [name, part] of Object.entries(parts)) {
      if (!(part instanceof Uint8Array)) {
        reused.push(part);
        places[name] = part;
        continue;
      }
      const place = { id: newId(), bytes: part.byteLength };
      places[name] = place;
      if (part.byteLength > room) ahead.push(place);
      else {
        room -= part.byteLength;
        inline.push([place.id, part]);
      }
    }
    return { parts: places, inline, ahead, reused };
  }

  /** Writes the large parts, one piece after another. */
  async #writeAhead(parts: NextEntry<Head>["parts"], prepared: Prepared): Promise<void> {
    for (const [name, bytes] of Object.entries(parts)) {
      const place = prepared.parts[name] as Part;
      if (!(bytes instanceof Uint8Array) || !prepared.ahead.includes(place)) continue;
      const key = this.#partKey(place.id);
      await this.#connection.command("SET", key, bytes.subarray(0, PIECE_BYTES), "NX", "PX", UNCLAIMED_MS);
      for (let at = PIECE_BYTES; at < bytes.byteLength; at += PIECE_BYTES) {
        await this.#connection.command("APPEND", key, bytes.subarray(at, at + PIECE_BYTES));
      }
    }
  }

  /** Returns the size of an entry in bytes: its head and all its parts. Throws invalid_value if it is too large. */
  #checkedSize(head: Head, parts: Readonly<Record<string, Part>>): number {
    const bytes = Object.values(parts).reduce((sum, part) => sum + part.bytes, pack(head).byteLength);
    const limit = Math.min(this.#limits.maxEntryBytes, this.#limits.maxBytes);
    if (bytes > limit) throw new ServerError("invalid_value", `expected at most ${limit} bytes to keep, got ${bytes}`);
    return bytes;
  }

  #tidy(): Promise<void> {
    this.#tidying ??= this.#evictAll().finally(() => {
      this.#tidying = null;
    });
    return this.#tidying;
  }

  async #evictAll(): Promise<void> {
    const { maxAgeMs, maxEntries, maxBytes } = this.#limits;
    while (!this.#isClosing) {
      const isMore = await this.#run(evictScript, [this.#now(), maxAgeMs, maxEntries, maxBytes, this.#replacedMs]);
      if (isMore === 0) return;
    }
  }

  #entryOf(metadata: Buffer, content: Buffer): KeptEntry<Head> {
    const { v, b, x, s } = JSON.parse(metadata.toString()) as Metadata;
    const { head, parts } = unpack(content) as Content<Head>;
    const expiresAt = x === false ? null : x - this.#clockAheadMs;
    return { head, parts, share: s, born: b, version: Number(v), expiresAt };
  }

  /** Time of Redis minus wallTime(), in ms; 0 in tests with a clock of their own. */
  get #clockAheadMs(): number {
    return this.#now() === "" ? this.#connection.clockAheadMs : 0;
  }

  async #run(script: Script, args: readonly Argument[]): Promise<Value> {
    return await this.#connection.run(script, this.#prefix, args);
  }

  #partKey(id: number): string {
    return `${this.#prefix}p:${id}`;
  }
}

function isDone(reply: Value): boolean {
  return (reply as readonly number[])[0] === 1;
}

/** Returns a random id of 53 bits: ids are never reused, even after Redis has lost its data. */
function newId(): number {
  return randomInt(2 ** 21) * 2 ** 32 + randomInt(2 ** 32);
}
