// Redis store: the store interface over Redis or Valkey, shared by any number of replicas. Each read and each write is one Lua
// script, so it is atomic and needs one round trip. Parts are strings of their own, read in pieces. A large part is written
// ahead in pieces, so that Redis serves other clients between them; the script of the write then only adds it.
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

/** Maximum bytes of the parts in the command that writes the entry. */
const INLINE_BYTES = 2 ** 20;
/** Size of the pieces in which larger parts are written ahead, and all parts are read. */
const PIECE_BYTES = 2 ** 20;
/**
 * Maximum number of pieces that are read at once. A connection sends them one after another, and the time limit of each begins
 * when it is asked for, so further pieces would be late on a slow connection.
 */
const READ_PIECES = 2;
/** Size up to which a piece is read at once, whatever else is being read. */
const SHORT_BYTES = 64 * 1024;
/** Time in ms after which a part that was written ahead but not added is removed, because its writer is gone. */
const UNCLAIMED_MS = 10 * 60_000;
/** Time in ms for which replaced and removed parts stay readable, because reading an entry takes several round trips. */
const REPLACED_MS = 10_000;

/** What identifies an entry in scripts: see `m` in scripts.ts. */
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

/** The parts of an entry to write. */
interface Prepared {
  readonly parts: Readonly<Record<string, Part>>;
  readonly inline: readonly (readonly [id: number, bytes: Uint8Array])[];
  readonly ahead: readonly Part[];
  readonly reused: readonly Part[];
}

export interface RedisStoreOptions {
  /** Milliseconds since 1970; default: the time of the Redis server. */
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

  /** Only one store of each name may be open in a process. The caller closes the connection. */
  constructor(connection: RedisConnection, name: string, limits: StoreLimits, options: RedisStoreOptions = {}) {
    this.#connection = connection;
    this.#prefix = `{troupe}:${name}:`;
    this.#limits = limits;
    this.#now = options.now ?? (() => "");
    this.#replacedMs = options.replacedMs ?? REPLACED_MS;
  }

  async get(key: string): Promise<KeptEntry<Head> | null> {
    const found = (await this.#run(getScript, [key, this.#now(), this.#limits.maxAgeMs])) as readonly Buffer[] | null;
    return found === null ? null : entryOf<Head>(found[0] as Buffer, found[1] as Buffer);
  }

  async read(part: number, from: number, to: number): Promise<Uint8Array | null> {
    if (to <= from) return new Uint8Array(0);
    // The bytes are copied, because the client's buffers may be views of a larger one, and slices are moved between threads.
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
      entries.push({ ...entryOf<Head>(rows[i + 1] as Buffer, rows[i + 2] as Buffer), key: String(rows[i]) });
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
      if (metadata.byteLength > 0) entries.push({ ...entryOf<Head>(metadata, content), key });
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
      // Changes may have been missed meanwhile.
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
        next.expiresAt ?? "",
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
      // Parts of a write that was refused. If the reply was lost, they may belong to the entry, so they are left to expire.
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

  async #run(script: Script, args: readonly Argument[]): Promise<Value> {
    return await this.#connection.run(script, this.#prefix, args);
  }

  #partKey(id: number): string {
    return `${this.#prefix}p:${id}`;
  }
}

function entryOf<Head>(metadata: Buffer, content: Buffer): KeptEntry<Head> {
  const { v, b, x, s } = JSON.parse(metadata.toString()) as Metadata;
  const { head, parts } = unpack(content) as Content<Head>;
  return { head, parts, share: s, born: b, version: Number(v), expiresAt: x === false ? null : x };
}

function isDone(reply: Value): boolean {
  return (reply as readonly number[])[0] === 1;
}

/** Returns a random id of 53 bits: ids are never reused, even after Redis has lost its data. */
function newId(): number {
  return randomInt(2 ** 21) * 2 ** 32 + randomInt(2 ** 32);
}
