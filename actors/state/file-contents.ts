// File contents: the bytes of stored files, one regular file per id, in the state folder. New contents are written to a staging
// folder on the same file system, then renamed into the content folder.
import { randomBytes } from "node:crypto";
import {
  constants,
  type FileHandle,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { ServerError } from "../../runtime/errors.ts";
import { fileLimits } from "../api/agent/files.ts";
import { headBytes } from "../files/file-type.ts";

/** Age in milliseconds from which a staged file counts as abandoned. */
const STAGED_MS = 3_600_000;
const PIECE_BYTES = 256 * 1024;
const idPattern = /^[A-Za-z0-9_-]{1,128}$/;

/** Properties of a file, read from its bytes. */
export interface ReadContent {
  readonly bytes: number;
  /** First bytes of the file, at most headBytes. */
  readonly head: Uint8Array;
  readonly isText: boolean;
  /** Beginning of the text, at most inputPreviewCharacters characters; null = the file is not text. */
  readonly preview: string | null;
}

export class FileContents {
  readonly stagingFolder: string;
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = join(folder, "content");
    this.stagingFolder = join(folder, "staging");
  }

  async open(): Promise<void> {
    for (const folder of [this.#folder, this.stagingFolder]) await mkdir(folder, { recursive: true, mode: 0o700 });
  }

  pathOf(id: string): string {
    if (!idPattern.test(id))
      throw new ServerError("invalid_value", `expected the id of a file, got ${JSON.stringify(id)}`);
    return join(this.#folder, id);
  }

  /**
   * Moves a staged file into the content folder. Resolves when its bytes are flushed to disk. Throws invalid_value if the file is
   * too large.
   */
  async adopt(id: string, staged: string): Promise<ReadContent> {
    const from = join(this.stagingFolder, checkedStaged(staged));
    let file: FileHandle | null = null;
    try {
      file = await open(from, constants.O_RDONLY | constants.O_NOFOLLOW);
      const read = await readContent(file);
      await file.sync();
      await rename(from, this.pathOf(id));
      await syncFolder(this.#folder);
      return read;
    } catch (error) {
      throw error instanceof ServerError ? error : unavailable(error);
    } finally {
      await file?.close();
    }
  }

  /** Returns the content of a file as bytes. */
  async read(id: string): Promise<Uint8Array> {
    return await readFile(this.pathOf(id)).catch((error) => {
      throw unavailable(error);
    });
  }

  /** Writes the content of a file that another replica has stored. */
  async write(id: string, bytes: Uint8Array): Promise<void> {
    await this.receive(id, async (path) => {
      await writeFile(path, bytes, { flag: "wx", mode: 0o600 });
      return true;
    });
  }

  /** Calls `write` with a temporary path and, if it returns true, stores the written file as the content. Returns the result of `write`. */
  async receive(id: string, write: (path: string) => Promise<boolean>): Promise<boolean> {
    const staged = join(this.stagingFolder, `copy-${randomBytes(16).toString("hex")}`);
    try {
      const isThere = await write(staged);
      if (isThere) await rename(staged, this.pathOf(id));
      return isThere;
    } catch (error) {
      throw error instanceof ServerError ? error : unavailable(error);
    }
  }

  /** Removes a staged file. Does nothing if it has been moved to the content folder. */
  async discard(staged: string): Promise<void> {
    await rm(join(this.stagingFolder, checkedStaged(staged)), { force: true });
  }

  /** Returns the size of a content in bytes; null = the content does not exist. */
  async sizeOf(id: string): Promise<number | null> {
    return await stat(this.pathOf(id)).then(
      ({ size }) => size,
      () => null,
    );
  }

  async remove(id: string): Promise<void> {
    await rm(this.pathOf(id), { force: true });
  }

  /**
   * Removes abandoned staged files, and contents for which `isKept` returns false. A content is stored shortly before its
   * metadata, so contents younger than `leastAgeMs` milliseconds are kept. `now`: milliseconds since 1970.
   */
  async sweep(now: number, leastAgeMs: number, isKept: (id: string) => boolean): Promise<void> {
    await this.#removeOld(this.stagingFolder, now - STAGED_MS, () => true);
    await this.#removeOld(this.#folder, now - leastAgeMs, (id) => !isKept(id));
  }

  async #removeOld(folder: string, before: number, isGone: (name: string) => boolean): Promise<void> {
    for (const name of await readdir(folder)) {
      if (!isGone(name)) continue;
      const path = join(folder, name);
      // Another server with the same state folder may remove the file at the same time.
      const age = await stat(path).catch(() => null);
      if (age !== null && age.ctimeMs <= before) await rm(path, { force: true });
    }
  }
}

function checkedStaged(name: string): string {
  if (idPattern.test(name)) return name;
  throw new ServerError("invalid_value", `expected the name of a staged file, got ${JSON.stringify(name)}`);
}

async function readContent(file: FileHandle): Promise<ReadContent> {
  const { size } = await file.stat();
  if (size > fileLimits.maxFileBytes) {
    throw new ServerError("invalid_value", `expected a file of at most ${fileLimits.maxFileBytes} bytes, got ${size}`, {
      param: "file",
    });
  }
  const text = new TextCheck();
  const buffer = Buffer.allocUnsafe(PIECE_BYTES);
  let head = new Uint8Array(0);
  let bytes = 0;
  for (;;) {
    const { bytesRead } = await file.read(buffer, 0, PIECE_BYTES, bytes);
    if (bytes === 0) head = new Uint8Array(buffer.subarray(0, Math.min(bytesRead, headBytes)));
    if (bytesRead === 0) break;
    bytes += bytesRead;
    text.add(buffer.subarray(0, bytesRead));
  }
  const preview = text.end();
  return { bytes, head, isText: preview !== null, preview };
}

/** Checks whether bytes are UTF-8 text without NUL, and keeps the beginning of the text. */
class TextCheck {
  readonly #decoder = new TextDecoder("utf-8", { fatal: true });
  #isText = true;
  #preview = "";

  add(bytes: Uint8Array): void {
    if (!this.#isText) return;
    try {
      const text = this.#decoder.decode(bytes, { stream: true });
      if (bytes.includes(0)) this.#isText = false;
      const room = fileLimits.inputPreviewCharacters - this.#preview.length;
      if (room > 0) this.#preview += wholeCharacters(text.slice(0, room));
    } catch {
      this.#isText = false;
    }
  }

  /** Returns the beginning of the text; null = the bytes are not text. */
  end(): string | null {
    try {
      this.#decoder.decode();
    } catch {
      return null;
    }
    return this.#isText ? this.#preview : null;
  }
}

/** Removes an unpaired surrogate at the end of a text. */
function wholeCharacters(text: string): string {
  return /[\uD800-\uDBFF]$/.test(text) ? text.slice(0, -1) : text;
}

/** Flushes the directory entries of a folder to disk. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

function unavailable(error: unknown): ServerError {
  const reason = error instanceof Error ? error.message : String(error);
  return new ServerError("storage_unavailable", `the file cannot be stored now: ${reason}`, { cause: error });
}
