// File store: keeps the metadata of files in a store, and their contents on disk. A file's content is flushed to disk before its
// metadata is stored, so that every listed file can be read.
import { randomBytes } from "node:crypto";
import { wallTime } from "../../runtime/clock.ts";
import type { Bucket } from "../../runtime/store/bucket/bucket.ts";
import type { Part, Store } from "../../runtime/store/store.ts";
import {
  type FileContent,
  type Files,
  type FileToStore,
  fileIdPattern,
  fileLimits,
  type StoredFile,
} from "../api/agent/files.ts";
import { checkedFileName } from "../files/file-name.ts";
import { formatOf, mimeTypeOf } from "../files/file-type.ts";
import type { FileContents } from "./file-contents.ts";

/**
 * Extracts the beginning of a document's text; null = the document has no text, or cannot be read within the limits. `client`:
 * client that sent or produced the document.
 */
export type ExtractText = (path: string, mimeType: string, client: string) => Promise<string | null>;

export interface FileStoreOptions {
  readonly store: Store<StoredFile>;
  readonly contents: FileContents;
  /** Maximum total size of all contents in bytes. Beyond it, the oldest contents are removed; their metadata is kept. */
  readonly maxContentBytes: number;
  readonly extractText: ExtractText;
  /** Whether contents are also in the store, for other replicas. The files on disk are then only copies. */
  readonly sharesContents?: boolean;
  /**
   * Bucket that holds the contents instead of the store (files_url); absent or null = no bucket. With a bucket, the files on disk
   * are copies.
   */
  readonly bucket?: Bucket | null;
  /** Returns milliseconds since 1970. */
  readonly now?: () => number;
}

/** Quota group of files in the store: one group for all clients, so that a full store removes the oldest file of all clients. */
const share = "files";
/** Number of entries that are read in one request to the store. */
const PAGE = 512;
/** Age in milliseconds from which a content without metadata is removed. By then, every server has stored the metadata of its uploads. */
const ORPHAN_MS = 10 * 60_000;

export class FileStore implements Files {
  readonly #options: FileStoreOptions;
  readonly #now: () => number;
  /** Returns the system time in ms, to compute the age of files. wallTime() is unsuitable, as it ignores changes of the clock. */
  readonly #diskNow: () => number;
  /**
   * Estimated total size of all contents in bytes; null = not known yet. Until the next sweep, expired files are still counted,
   * and new files of other servers with the same state folder are not counted.
   */
  #totalBytes: number | null = null;

  constructor(options: FileStoreOptions) {
    this.#options = options;
    this.#now = options.now ?? wallTime;
    this.#diskNow = options.now ?? Date.now;
  }

  get stagingFolder(): string {
    return this.#options.contents.stagingFolder;
  }

  /** Stores a file. On failure, its staged bytes are removed. */
  async add(file: FileToStore): Promise<StoredFile> {
    try {
      return await this.#add(file);
    } catch (error) {
      if (file.staged !== null) await this.#options.contents.discard(file.staged).catch(() => {});
      throw error;
    }
  }

  async #add(file: FileToStore): Promise<StoredFile> {
    const { store, contents } = this.#options;
    const { purpose, source, session, failure } = file;
    const name = checkedFileName(file.name, purpose === "agent_output");
    const id = file.id ?? `file-${randomBytes(16).toString("hex")}`;
    const read = file.staged === null ? noContent : await contents.adopt(id, file.staged);
    const mimeType = await mimeTypeOf(name, read.head, read.isText);
    const preview = read.preview ?? (file.staged === null ? null : await this.#documentText(id, mimeType, file.client));
    const createdMs = this.#now();
    const stored: StoredFile = {
      id,
      name,
      format: formatOf(name, file.format),
      mimeType,
      bytes: read.bytes,
      createdAt: Math.floor(createdMs / 1000),
      purpose,
      source,
      session,
      isText: read.isText,
      preview,
      failure,
    };
    const { bucket = null } = this.#options;
    const hasContent = file.staged !== null;
    const isShared = this.#options.sharesContents === true && bucket === null && hasContent;
    const parts: Record<string, Uint8Array> = isShared ? { content: await contents.read(id) } : {};
    const entry = { head: stored, share, parts, expiresAt: createdMs + fileLimits.lifetimeMs };
    try {
      if (hasContent) await bucket?.put(id, contents.pathOf(id), stored.bytes);
      await store.put(id, entry);
    } catch (error) {
      await contents.remove(id).catch(() => {});
      // If this removal fails too, the next sweep removes the object.
      void bucket?.remove(id).catch(() => {});
      throw error;
    }
    await this.#keepWithinBudget(stored);
    return stored;
  }

  async list(request: Parameters<Files["list"]>[0]): ReturnType<Files["list"]> {
    const all = (await this.#all())
      .filter(({ session }) => request.session === null || session === request.session)
      .reverse();
    const from = request.after === null ? 0 : all.findIndex(({ id }) => id === request.after) + 1;
    const files = all.slice(from, from + request.limit);
    return { files, hasMore: all.length > from + request.limit };
  }

  async find(id: string): Promise<StoredFile | null> {
    return (await this.#options.store.get(id))?.head ?? null;
  }

  async content(id: string): Promise<FileContent | null> {
    const { store, contents } = this.#options;
    const kept = await store.get(id);
    if (kept === null) return null;
    const { head: file, parts } = kept;
    if (file.failure !== null) return { kind: "failed", file };
    if ((await contents.sizeOf(id)) !== file.bytes) {
      const isThere = await this.#copy(file, parts.content);
      if (!isThere) return { kind: "elided", file };
    }
    return { kind: "content", file, path: contents.pathOf(id) };
  }

  async delete(id: string): Promise<boolean> {
    const wasThere = await this.#options.store.delete(id);
    if (wasThere) await this.#removeContent(id);
    return wasThere;
  }

  /** Removes the contents of files that are deleted, expired or evicted. */
  async sweep(): Promise<void> {
    const { store, contents } = this.#options;
    await store.sweep();
    const files = await this.#all();
    this.#totalBytes = sizeOf(files);
    const kept = new Set(files.map(({ id }) => id));
    await contents.sweep(this.#diskNow(), ORPHAN_MS, (id) => kept.has(id));
    await this.#sweepBucket(kept);
  }

  /** Removes objects without metadata. The bucket's clock, by which their age is measured, must be off by less than ORPHAN_MS. */
  async #sweepBucket(kept: ReadonlySet<string>): Promise<void> {
    const { bucket = null } = this.#options;
    if (bucket === null) return;
    for await (const { name, changedAt } of bucket.list()) {
      if (!kept.has(name) && fileIdPattern.test(name) && changedAt <= this.#diskNow() - ORPHAN_MS)
        await bucket.remove(name);
    }
  }

  /**
   * Copies the content of a file that another replica has stored to the local disk. Returns false if the shared store no longer has
   * the content.
   */
  async #copy({ id, bytes }: StoredFile, part: Part | undefined): Promise<boolean> {
    const { store, contents, bucket = null } = this.#options;
    if (bucket !== null) return await contents.receive(id, (path) => bucket.get(id, path, bytes));
    const content = part === undefined ? null : await store.read(part.id, 0, part.bytes);
    if (content !== null) await contents.write(id, content);
    return content !== null;
  }

  async #removeContent(id: string): Promise<void> {
    const { contents, bucket = null } = this.#options;
    await contents.remove(id);
    // If this removal fails, the next sweep removes the object.
    await bucket?.remove(id).catch(() => {});
  }

  async onStop(): Promise<void> {
    await this.#options.store.close();
  }

  async #documentText(id: string, mimeType: string, client: string): Promise<string | null> {
    return await this.#options.extractText(this.#options.contents.pathOf(id), mimeType, client);
  }

  /** Removes the contents of the oldest files until the total is within the budget. The added file keeps its content. */
  async #keepWithinBudget(added: StoredFile): Promise<void> {
    const { contents, maxContentBytes, bucket = null } = this.#options;
    this.#totalBytes = this.#totalBytes === null ? sizeOf(await this.#all()) : this.#totalBytes + added.bytes;
    if (this.#totalBytes <= maxContentBytes) return;
    if (bucket !== null) return await this.#removeOldest(added);
    const withContent: StoredFile[] = [];
    for (const file of await this.#all()) if ((await contents.sizeOf(file.id)) !== null) withContent.push(file);
    let total = sizeOf(withContent);
    for (const { id, bytes } of withContent) {
      if (total <= maxContentBytes) break;
      if (id === added.id) continue;
      total -= bytes;
      await contents.remove(id);
    }
    this.#totalBytes = total;
  }

  /** Removes the oldest files, whose contents are in the bucket, until the total is within the budget. */
  async #removeOldest(added: StoredFile): Promise<void> {
    const files = await this.#all();
    let total = sizeOf(files);
    for (const { id, bytes } of files) {
      if (total <= this.#options.maxContentBytes) break;
      if (id === added.id) continue;
      total -= bytes;
      await this.delete(id);
    }
    this.#totalBytes = total;
  }

  /** Returns all files, oldest first. */
  async #all(): Promise<readonly StoredFile[]> {
    const files: { readonly head: StoredFile; readonly expiresAt: number }[] = [];
    for (let cursor: string | null = null; ; ) {
      const page = await this.#options.store.list({ cursor, limit: PAGE });
      for (const { head, expiresAt } of page.entries) files.push({ head, expiresAt: expiresAt ?? 0 });
      cursor = page.cursor;
      if (cursor === null) break;
    }
    // Sorted by expiry, which follows from the creation time and is more precise (ms) than `createdAt` (s).
    return files.sort((one, other) => one.expiresAt - other.expiresAt).map(({ head }) => head);
  }
}

function sizeOf(files: readonly StoredFile[]): number {
  return files.reduce((sum, { bytes }) => sum + bytes, 0);
}

const noContent = { bytes: 0, head: new Uint8Array(0), isText: false, preview: null } as const;
