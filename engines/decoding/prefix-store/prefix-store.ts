// Prefix store: the step loop's interface to KV that is stored on disk and survives restarts. find() is immediate,
// read() is asynchronous, and put() only queues a write. A separate thread reads and writes files and computes
// checksums. After a disk error, prefixes are not found and are computed again; no request gets an error.
import type { PrefixContent, StoreModel } from "./prefix-file.ts";
import type { PrefixStoreOptions } from "./prefix-folder.ts";
import { beginsWith, type ListedPrefix, type PrefixKey, PrefixList } from "./prefix-list.ts";
import { StoreThread } from "./store-thread.ts";
import { WriteQueue } from "./write-queue.ts";

export type { PrefixStoreOptions } from "./prefix-folder.ts";

/** A file of the store whose tokens have a common prefix with a prompt. */
export interface StoredPrefix {
  readonly name: string;
  /** Number of tokens in the file. */
  readonly tokens: number;
  /** Length in tokens of the common prefix of the prompt and the file. */
  readonly usable: number;
  /** Size of the file in bytes. */
  readonly bytes: number;
}

/**
 * Minimum number of tokens of a prefix to store or find. Computing a shorter prefix takes less time than reading it.
 */
const leastTokens = 64;
/** Maximum bytes of pending writes. Each write is a copy of the KV of a sequence in main memory. */
const maxWaitingBytes = 512 * 2 ** 20;

export class PrefixStore {
  /** Counts since the start. `losses`: files that were missing, damaged or unreadable. */
  readonly counts = { reads: 0, losses: 0, writes: 0, failedWrites: 0 };
  readonly #thread: StoreThread;
  #notice: (message: string) => void;
  readonly #list = new PrefixList();
  readonly #queue = new WriteQueue(maxWaitingBytes);
  /** The prefix that is being written. Its bytes have been transferred to the store's thread. */
  #writing: PrefixKey | null = null;
  readonly #reading = new Map<string, Promise<PrefixContent | null>>();
  #lastRead: Promise<void> = Promise.resolve();
  #idle: Promise<void> = Promise.resolve();
  #lastNotice = "";

  private constructor(thread: StoreThread, notice: (message: string) => void) {
    this.#thread = thread;
    this.#notice = notice;
  }

  /**
   * Opens the store. Throws config_invalid if the folder cannot be used. `notice` is called with the messages of later
   * problems, for the log.
   */
  static async open(
    options: PrefixStoreOptions,
    model: StoreModel,
    notice: (message: string) => void = () => {},
  ): Promise<PrefixStore> {
    const { thread, prefixes } = await StoreThread.start({ options, model });
    const store = new PrefixStore(thread, notice);
    for (const prefix of prefixes) void store.#enlist(prefix);
    return store;
  }

  /** Number of files that find() can return. */
  get fileCount(): number {
    return this.#list.size;
  }

  /**
   * Returns the file whose tokens have the longest common prefix with `tokens`; null if that prefix is shorter than
   * 64 tokens. The common prefix may be all of `tokens`.
   */
  find(adapter: string, tokens: Int32Array): StoredPrefix | null {
    const found = this.#list.longest({ adapter, tokens });
    if (found === null || found.length < leastTokens) return null;
    const { prefix, length } = found;
    return { name: prefix.name, tokens: prefix.tokens.length, usable: length, bytes: prefix.fileBytes };
  }

  /**
   * Reads the tokens and the bytes of a file. Returns null if the file is missing, damaged or unreadable; find() then
   * does not return the file again. Simultaneous reads of a file share one result, so callers must not change the
   * result.
   */
  read({ name }: StoredPrefix): Promise<PrefixContent | null> {
    const underWay = this.#reading.get(name);
    if (underWay !== undefined) return underWay;
    // Reads run one at a time, because each result takes as much memory as the KV of a sequence until it is imported
    // between two steps.
    const reading = this.#lastRead.then(() => this.#read(name)).finally(() => this.#reading.delete(name));
    this.#reading.set(name, reading);
    this.#lastRead = reading.then(() => undefined);
    return reading;
  }

  /**
   * Whether put() would store this prefix: the prefix is long enough, and neither the store nor the queue
   * contains it or an extension of it.
   */
  wants(adapter: string, tokens: Int32Array): boolean {
    const key = { adapter, tokens };
    const isBeingWritten = this.#writing !== null && beginsWith(this.#writing, key);
    return tokens.length >= leastTokens && !isBeingWritten && !this.#list.covers(key) && !this.#queue.covers(key);
  }

  /**
   * Queues a prefix to be written, if wants() returns true for it. The store owns `bytes` from now on. If too many
   * writes are pending, the oldest are dropped. A caller that needs all prefixes to be stored before the process ends
   * must await flush() after each put().
   */
  put(adapter: string, tokens: Int32Array, bytes: Uint8Array): void {
    if (!this.wants(adapter, tokens)) return;
    this.#queue.push({ adapter, tokens: tokens.slice(), bytes });
    if (this.#writing === null) this.#idle = this.#writeAll();
  }

  /** Resolves when no write is pending. */
  async flush(): Promise<void> {
    await this.#idle;
  }

  /** Ends the thread. Pending writes are lost. */
  async dispose(): Promise<void> {
    this.#queue.clear();
    this.#notice = () => {};
    await this.#thread.stop();
  }

  async #read(name: string): Promise<PrefixContent | null> {
    this.counts.reads++;
    const answer = await this.#thread.ask({ kind: "read", name });
    if (answer.kind === "read") return answer.content;
    this.#list.remove(name);
    this.counts.losses++;
    if (answer.kind === "failed") this.#say(`a stored prefix is lost and will be computed again: ${answer.reason}`);
    return null;
  }

  async #writeAll(): Promise<void> {
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      this.#writing = next;
      await this.#write(next);
    }
    this.#writing = null;
  }

  async #write({ adapter, tokens, bytes }: PrefixContent): Promise<void> {
    // If the ArrayBuffer also contains other data, it cannot be transferred, so the bytes are copied.
    const own = bytes.buffer instanceof ArrayBuffer && bytes.length === bytes.buffer.byteLength;
    const moved = own ? bytes : new Uint8Array(bytes);
    const expendable = this.#list.coveredBy({ adapter, tokens })?.name ?? null;
    const task = { kind: "write", content: { adapter, tokens, bytes: moved }, expendable } as const;
    const answer = await this.#thread.ask(task, [moved.buffer as ArrayBuffer]);
    if (answer.kind === "written") {
      const { name, fileBytes, removed } = answer.file;
      this.counts.writes++;
      for (const gone of removed) this.#list.remove(gone);
      await this.#enlist({ name, adapter, tokens, fileBytes });
    } else if (answer.kind === "failed") {
      this.counts.failedWrites++;
      this.#say(`the KV of a prompt was not stored: ${answer.reason}`);
    }
  }

  /** Adds a prefix to the list. Removes the file of a shorter prefix that the new prefix begins with. */
  async #enlist(prefix: ListedPrefix): Promise<void> {
    const superfluous = this.#list.covers(prefix) ? prefix : this.#list.add(prefix);
    // The thread runs its tasks in order, so reads that were sent before the removal still succeed. A read that is sent
    // later finds no file and returns null.
    if (superfluous !== null) await this.#thread.ask({ kind: "remove", name: superfluous.name });
  }

  /**
   * Reports a message unless it equals the previous one. A full disk, for example, would give the
   * same message for every prompt.
   */
  #say(message: string): void {
    if (message !== this.#lastNotice) this.#notice(message);
    this.#lastNotice = message;
  }
}
