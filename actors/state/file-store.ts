// File store: metadata of files in a store, and their contents on disk. A file's content is on the disk before its metadata, so
// that every file that is listed can be read.
import { randomBytes } from "node:crypto";
import { wallTime } from "../../runtime/clock.ts";
import type { Store } from "../../runtime/store/store.ts";
import { type FileContent, type Files, type FileToStore, fileLimits, type StoredFile } from "../api/agent/files.ts";
import { checkedFileName } from "../files/file-name.ts";
import { formatOf, mimeTypeOf } from "../files/file-type.ts";
import type { FileContents } from "./file-contents.ts";

/**
 * Extracts the beginning of the text of a document; null: the document has no text, or cannot be read within the limits.
 * `client`: client that sent or produced it.
 */
export type ExtractText = (path: string, mimeType: string, client: string) => Promise<string | null>;

export interface FileStoreOptions {
  readonly store: Store<StoredFile>;
  readonly contents: FileContents;
  /** Maximum size of all contents in bytes. Beyond it, the oldest contents are removed; their metadata stays. */
  readonly maxContentBytes: number;
  readonly extractText: ExtractText;
  /** Returns milliseconds since 1970. */
  readonly now?: () => number;
}

/** All files belong to one share of the store, so that a full store removes the oldest file of all clients. */
const share = "files";
/** Number of entries that are read at once. */
const PAGE = 512;
/**
 * Age in milliseconds from which a content without metadata is removed. By then, every server has stored the metadata of its
 * uploads.
 */
const ORPHAN_MS = 10 * 60_000;

export class FileStore implements Files {
  readonly #options: FileStoreOptions;
  readonly #now: () => number;
  /**
   * Estimated size of all contents in bytes; null: not known yet. Until the next sweep, expired files count, and new files of
   * other servers with the same state folder do not.
   */
  #totalBytes: number | null = null;

  constructor(options: FileStoreOptions) {
    this.#options = options;
    this.#now = options.now ?? wallTime;
  }

  get stagingFolder(): string {
    return this.#options.contents.stagingFolder;
  }

  /** Stores a file. If it is not stored, its staged bytes are removed. */
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
    const entry = { head: stored, share, parts: {}, expiresAt: createdMs + fileLimits.lifetimeMs };
    try {
      await store.put(id, entry);
    } catch (error) {
      await contents.remove(id).catch(() => {});
      throw error;
    }
    await this.#keepWithinBudget(stored);
    return stored;
  }

  async list(request: Parameters<Files["list"]>[0]): ReturnType<Files["list"]> {
    const all = this.#all()
      .filter(({ session }) => request.session === null || session === request.session)
      .reverse();
    const from = request.after === null ? 0 : all.findIndex(({ id }) => id === request.after) + 1;
    const files = all.slice(from, from + request.limit);
    return { files, hasMore: all.length > from + request.limit };
  }

  async find(id: string): Promise<StoredFile | null> {
    return this.#options.store.get(id)?.head ?? null;
  }

  async content(id: string): Promise<FileContent | null> {
    const file = await this.find(id);
    if (file === null) return null;
    if (file.failure !== null) return { kind: "failed", file };
    const { contents } = this.#options;
    return (await contents.sizeOf(id)) === file.bytes
      ? { kind: "content", file, path: contents.pathOf(id) }
      : { kind: "elided", file };
  }

  async delete(id: string): Promise<boolean> {
    const wasThere = await this.#options.store.delete(id);
    if (wasThere) await this.#options.contents.remove(id);
    return wasThere;
  }

  /** Removes the contents of files that are deleted, expired or evicted. */
  async sweep(): Promise<void> {
    const { store, contents } = this.#options;
    await store.sweep();
    const files = this.#all();
    this.#totalBytes = sizeOf(files);
    const kept = new Set(files.map(({ id }) => id));
    await contents.sweep(this.#now(), ORPHAN_MS, (id) => kept.has(id));
  }

  async onStop(): Promise<void> {
    await this.#options.store.close();
  }

  async #documentText(id: string, mimeType: string, client: string): Promise<string | null> {
    return await this.#options.extractText(this.#options.contents.pathOf(id), mimeType, client);
  }

  /** Removes the contents of the oldest files until all contents are within the budget. The added file keeps its content. */
  async #keepWithinBudget(added: StoredFile): Promise<void> {
    const { contents, maxContentBytes } = this.#options;
    this.#totalBytes = this.#totalBytes === null ? sizeOf(this.#all()) : this.#totalBytes + added.bytes;
    if (this.#totalBytes <= maxContentBytes) return;
    const withContent: StoredFile[] = [];
    for (const file of this.#all()) if ((await contents.sizeOf(file.id)) !== null) withContent.push(file);
    let total = sizeOf(withContent);
    for (const { id, bytes } of withContent) {
      if (total <= maxContentBytes) break;
      if (id === added.id) continue;
      total -= bytes;
      await contents.remove(id);
    }
    this.#totalBytes = total;
  }

  /** Returns all files, the oldest first. */
  #all(): readonly StoredFile[] {
    const files: { readonly head: StoredFile; readonly expiresAt: number }[] = [];
    for (let cursor: string | null = null; ; ) {
      const page = this.#options.store.list({ cursor, limit: PAGE });
      for (const { head, expiresAt } of page.entries) files.push({ head, expiresAt: expiresAt ?? 0 });
      cursor = page.cursor;
      if (cursor === null) break;
    }
    // The expiry follows from the time of creation, and is more precise (ms) than `createdAt` (s).
    return files.sort((one, other) => one.expiresAt - other.expiresAt).map(({ head }) => head);
  }
}

function sizeOf(files: readonly StoredFile[]): number {
  return files.reduce((sum, { bytes }) => sum + bytes, 0);
}

const noContent = { bytes: 0, head: new Uint8Array(0), isText: false, preview: null } as const;
