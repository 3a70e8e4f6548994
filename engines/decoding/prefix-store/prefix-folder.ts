// Prefix folder: stores prefixes on disk in a subfolder for each model and a file for each prefix. The total size is
// limited: the least recently used files of any model are removed first. Runs on the store's own thread. Other
// processes may use the same folder. Files whose names have another format are never touched.
import { createHash, randomBytes } from "node:crypto";
import { lstatSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { makeFolder } from "../../../runtime/host/make-folder.ts";
import {
  DamagedFile,
  type PrefixContent,
  type PrefixHead,
  prefixFileBytes,
  readPrefixFile,
  readPrefixHead,
  type StoreModel,
  writePrefixFile,
} from "./prefix-file.ts";
import type { ListedPrefix } from "./prefix-list.ts";

export interface PrefixStoreOptions {
  readonly folder: string;
  /** Maximum bytes of all files together. */
  readonly maxBytes: number;
}

const modelFolderName = /^[0-9a-f]{32}$/;
const fileName = /^[0-9a-f]{32}\.troupe-kv$/;
/** Matches the name of an incomplete file: a file that is being written, or whose writer process has ended. */
const partName = /^[0-9a-f]{32}\.troupe-kv\.[0-9a-f]{8}\.part$/;
/** Time in ms. A partial file that has not grown for this time is abandoned, because its writer process has ended. */
const abandonedMs = 60_000;
const ownerOnly = 0o700;

export interface WrittenFile {
  readonly name: string;
  readonly fileBytes: number;
  /** Names of the files of this model that were removed to make room. */
  readonly removed: readonly string[];
}

interface FoundFile {
  readonly path: string;
  readonly name: string;
  readonly bytes: number;
  readonly usedMs: number;
}

export class PrefixFolder {
  readonly #options: PrefixStoreOptions;
  readonly #model: StoreModel;
  /** Path of the folder with this model's files. */
  readonly #home: string;

  /**
   * Opens the model's folder and creates it if it does not exist. Removes abandoned files. If all files together exceed
   * the size limit, also removes the least recently used files. Throws config_invalid if the folder cannot be used.
   */
  constructor(options: PrefixStoreOptions, model: StoreModel) {
    this.#options = options;
    this.#model = model;
    this.#home = join(options.folder, hashOf(model.fingerprint, model.layout));
    try {
      makeFolder(this.#home, ownerOnly);
    } catch (error) {
      throw unusable(options.folder, (error as Error).message, error);
    }
    if (!isOurs(this.#home)) throw unusable(options.folder, `${this.#home} is a link, or belongs to another user`);
    for (const { path, usedMs } of this.#find(partName)) if (Date.now() - usedMs > abandonedMs) removeFile(path);
    this.#makeRoom(0, null);
  }

  /**
   * Returns the prefixes of this model. Unreadable files are left out, but remain on disk until they are removed to
   * make room.
   */
  list(): ListedPrefix[] {
    return this.#find(fileName)
      .filter(({ path }) => path.startsWith(this.#home))
      .flatMap(({ path, name }) => {
        const head = this.#headOf(path);
        return head === null ? [] : [{ ...head, name }];
      });
  }

  /** Reads a prefix. Throws an error with the reason if the file cannot be read. Removes a damaged file. */
  read(name: string): PrefixContent {
    try {
      return readPrefixFile(join(this.#home, name), this.#model);
    } catch (error) {
      if (!(error instanceof DamagedFile)) throw error;
      this.remove(name);
      throw new DamagedFile(`${name}: ${error.message}`);
    }
  }

  /**
   * Writes a prefix under a temporary name, and renames it when it is complete. If room is needed, the file
   * `expendable` is removed first. Throws an error with the reason if the prefix cannot be written.
   */
  write(content: PrefixContent, expendable: string | null): WrittenFile {
    const { fingerprint, layout } = this.#model;
    const name = `${hashOf(fingerprint, layout, content.adapter, content.tokens)}.troupe-kv`;
    const fileBytes = prefixFileBytes(this.#model, content);
    if (fileBytes > this.#options.maxBytes) throw new Error("it is larger than all the room there is");
    const removed = this.#makeRoom(fileBytes, expendable);
    const path = join(this.#home, name);
    const part = `${path}.${randomBytes(4).toString("hex")}.part`;
    try {
      writePrefixFile(part, this.#model, content);
      renameSync(part, path);
    } catch (error) {
      removeFile(part);
      throw error;
    }
    return { name, fileBytes, removed };
  }

  remove(name: string): void {
    removeFile(join(this.#home, name));
  }

  #headOf(path: string): PrefixHead | null {
    try {
      return readPrefixHead(path, this.#model);
    } catch {
      return null;
    }
  }

  /**
   * Removes files until `bytes` more bytes fit: `expendable` first, then the least recently used. Returns the names of
   * the removed files of this model.
   */
  #makeRoom(bytes: number, expendable: string | null): string[] {
    const files = [...this.#find(fileName), ...this.#find(partName)];
    const rank = ({ name, usedMs }: FoundFile) => (name === expendable ? 0 : usedMs);
    files.sort((a, b) => rank(a) - rank(b));
    let total = files.reduce((sum, file) => sum + file.bytes, bytes);
    const removed: string[] = [];
    for (const { path, name, bytes: freed } of files) {
      if (total <= this.#options.maxBytes) break;
      removeFile(path);
      total -= freed;
      if (path.startsWith(this.#home)) removed.push(name);
    }
    return removed;
  }

  /** Returns all files, of any model, whose file names match `kind`. */
  #find(kind: RegExp): FoundFile[] {
    return namesIn(this.#options.folder, modelFolderName)
      .map((name) => join(this.#options.folder, name))
      .filter(isOurs)
      .flatMap((folder) => namesIn(folder, kind).flatMap((name) => foundFile(folder, name)));
  }
}

function namesIn(folder: string, kind: RegExp): string[] {
  try {
    return readdirSync(folder).filter((name) => kind.test(name));
  } catch {
    return [];
  }
}

function foundFile(folder: string, name: string): FoundFile[] {
  const path = join(folder, name);
  const stat = lstatSync(path, { throwIfNoEntry: false });
  return stat?.isFile() ? [{ path, name, bytes: stat.size, usedMs: stat.mtimeMs }] : [];
}

/**
 * Whether the path is a folder of the current user and not a symbolic link. A folder of another user may contain
 * anything.
 */
function isOurs(folder: string): boolean {
  const stat = lstatSync(folder, { throwIfNoEntry: false });
  if (stat === undefined || !stat.isDirectory()) return false;
  return process.getuid === undefined || stat.uid === process.getuid();
}

function removeFile(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch {
    // A file that could not be removed still counts towards the total size. The removal is tried again later.
  }
}

function hashOf(...parts: readonly (string | Int32Array)[]): string {
  const hash = createHash("sha256");
  for (const part of parts) {
    const bytes =
      typeof part === "string" ? Buffer.from(part) : new Uint8Array(part.buffer, part.byteOffset, part.byteLength);
    hash.update(`${bytes.length}:`).update(bytes);
  }
  return hash.digest("hex").slice(0, 32);
}

function unusable(folder: string, reason: string, cause?: unknown): ServerError {
  const message = `prefix_cache_dir expects a folder that can be written to; got "${folder}": ${reason}`;
  return new ServerError("config_invalid", message, { param: "prefix_cache_dir", cause });
}
