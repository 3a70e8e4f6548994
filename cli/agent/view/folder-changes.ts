// Changes in the work folder: finds the files that a tool call has created, changed or deleted, with their content before and
// after. The number of scanned files and the kept content are limited (see `limits`), because the folder may be large.
import { constants, type Dirent } from "node:fs";
import { lstat, open } from "node:fs/promises";
import { relative } from "node:path";
import { fileState, filesBelow } from "../../../actors/tools/files/folder-files.ts";

export const limits = {
  /** Maximum number of files and folders that are scanned. Changes in a larger folder are not found. */
  entries: 10_000,
  /** Maximum size in bytes of a file whose content is kept. */
  fileBytes: 256 * 1024,
  /** Maximum total length of the kept content, in UTF-16 code units. */
  totalBytes: 32 * 2 ** 20,
} as const;

/** Folders of version control, packages and caches. Their changes are not shown. */
const skipped = new Set([".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".cache", ".tox"]);
const PARALLEL_READS = 64;

export interface FileChange {
  readonly path: string;
  readonly kind: "created" | "changed" | "deleted";
  /** Content before and after the call; null if the file did not exist then, or if its content is not kept. */
  readonly before: string | null;
  readonly after: string | null;
}

interface KnownFile {
  /** State of the file in the file system, as text. It changes with each write. */
  readonly state: string;
  /** Content; null if the file is binary or too large. */
  readonly text: string | null;
}

export class FolderChanges {
  readonly #folder: string;
  #known: ReadonlyMap<string, KnownFile> | null = null;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Whether the folder is small enough for its changes to be found. */
  get isTracked(): boolean {
    return this.#known !== null;
  }

  /** Returns the changes since the last call of this method, sorted by path. The first call returns an empty list. */
  async take(): Promise<readonly FileChange[]> {
    const before = this.#known;
    const after = await this.#scan(before ?? new Map());
    this.#known = after;
    return before === null || after === null ? [] : changesBetween(before, after);
  }

  /** Returns the files in the folder; null if there are too many. */
  async #scan(known: ReadonlyMap<string, KnownFile>): Promise<ReadonlyMap<string, KnownFile> | null> {
    const isSkipped = (entry: Dirent): boolean => entry.isDirectory() && skipped.has(entry.name);
    const { paths: unsorted, isComplete } = await filesBelow(this.#folder, limits.entries, isSkipped);
    if (!isComplete) return null;
    // The order decides which files' content is kept within the limits. So the files are sorted, to keep the same files in each
    // scan.
    const paths = unsorted.toSorted();
    const found = new Map<string, KnownFile>();
    let room: number = limits.totalBytes;
    for (let at = 0; at < paths.length; at += PARALLEL_READS) {
      const some = paths.slice(at, at + PARALLEL_READS);
      const files = await Promise.all(some.map((path) => readKnown(path, known.get(relative(this.#folder, path)))));
      for (const [i, file] of files.entries()) {
        if (file === null) continue;
        room -= file.text?.length ?? 0;
        found.set(relative(this.#folder, some[i] ?? ""), room < 0 ? { ...file, text: null } : file);
      }
    }
    return found;
  }
}

/** Returns a file; null if it no longer exists. Reads it again only if its state has changed. */
async function readKnown(path: string, known: KnownFile | undefined): Promise<KnownFile | null> {
  const found = await lstat(path, { bigint: true }).catch(() => null);
  if (found === null || !found.isFile()) return null;
  const state = fileState(found);
  if (known?.state === state) return known;
  return { state, text: found.size > limits.fileBytes ? null : await textOf(path) };
}

/** Returns the content of a file; null if the file is not UTF-8 text, is too large, is a symbolic link or cannot be read. */
async function textOf(path: string): Promise<string | null> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(path, flags).catch(() => null);
  if (file === null) return null;
  try {
    const found = await file.stat();
    if (!found.isFile() || found.size > limits.fileBytes) return null;
    // If the file grows during the read, its state changes too, so the next scan reads it again.
    const buffer = Buffer.allocUnsafe(found.size);
    const { bytesRead } = await file.read(buffer, 0, buffer.length, 0);
    const text = new TextDecoder("utf-8", { fatal: true }).decode(buffer.subarray(0, bytesRead));
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  } finally {
    await file.close();
  }
}

function changesBetween(
  before: ReadonlyMap<string, KnownFile>,
  after: ReadonlyMap<string, KnownFile>,
): readonly FileChange[] {
  return [...new Set([...before.keys(), ...after.keys()])].sort().flatMap((path) => {
    const [old, now] = [before.get(path), after.get(path)];
    // A file that was rewritten with the same content is not a change.
    if (old?.state === now?.state || (old !== undefined && old.text !== null && old.text === now?.text)) return [];
    const kind = old === undefined ? "created" : now === undefined ? "deleted" : "changed";
    return [{ path, kind, before: old?.text ?? null, after: now?.text ?? null } as const];
  });
}
