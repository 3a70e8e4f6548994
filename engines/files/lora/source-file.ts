// Source file: one open file of an adapter. Opening a file checks that the file is in the allowed folder and within the
// size limit, and never blocks. After reading, the file is checked for changes. Only checks on the open file are
// trusted, because a client chose the path.
import { type BigIntStats, constants } from "node:fs";
import { type FileHandle, open, readlink, realpath, stat } from "node:fs/promises";
import { dirname, isAbsolute, relative, resolve, sep } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { expecting } from "./adapter-problems.ts";

export interface FileLimits {
  /** Real path of the folder in which the file must lie; null = no restriction. */
  readonly root: string | null;
  readonly maxBytes: number;
}

/** Maximum number of symbolic links followed for one path. Linux has the same limit. */
const maxLinks = 40;
/** Maximum size of one read: node:fs reads at most 2^31 - 1 bytes per call. */
const maxReadBytes = 2 ** 30;

export class SourceFile {
  readonly handle: FileHandle;
  /** Name of the file in errors. */
  readonly name: string;
  readonly size: number;
  readonly #before: BigIntStats;

  private constructor(handle: FileHandle, name: string, before: BigIntStats) {
    this.handle = handle;
    this.name = name;
    this.size = Number(before.size);
    this.#before = before;
  }

  /** Opens and checks a file. Throws `adapter_file_*`, `invalid_adapter_file` and `lora_adapter_file_too_large`. */
  static async open(path: string, name: string, { root, maxBytes }: FileLimits): Promise<SourceFile> {
    const real = await realFile(path, name).catch(async (error: unknown) => {
      throw root === null || (await leadsInto(root, path)) ? error : forbidden(name);
    });
    if (root !== null && !isInside(root, real)) throw forbidden(name);
    const before = await stat(real, { bigint: true });
    if (!before.isFile())
      throw new ServerError("invalid_adapter_file", `${name} is not a regular file; name one that is`);
    if (before.size > maxBytes) throw tooLarge(name, before.size, maxBytes);
    // After the check above, a pipe or link may have replaced the file. With these flags, open() neither waits for a
    // pipe nor follows a link.
    const flags = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW;
    const gone = changed(name);
    const handle = await expecting({ ELOOP: gone, ENOENT: gone, ENXIO: gone }, () => open(real, flags));
    try {
      const file = new SourceFile(handle, name, before);
      await file.checkUnchanged();
      // After the path was resolved, links may have replaced folders in it. On systems without /proc, the path of the
      // open file is unknown, so the given path is resolved again.
      if ((await readlink(`/proc/self/fd/${handle.fd}`).catch(() => realpath(real))) !== real) throw changed(name);
      return file;
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /** Fills `into` with the bytes of the file from `position` on. */
  async read(into: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < into.length; ) {
      const length = Math.min(into.length - done, maxReadBytes);
      const { bytesRead } = await this.handle.read(into, done, length, position + done);
      if (bytesRead === 0) throw changed(this.name);
      done += bytesRead;
    }
  }

  /**
   * Throws `adapter_file_changed` if device, inode, size or time of the open file differ from those before it was
   * opened.
   */
  async checkUnchanged(): Promise<void> {
    const now = await this.handle.stat({ bigint: true });
    const isSame = (["dev", "ino", "size", "mtimeNs"] as const).every((key) => now[key] === this.#before[key]);
    if (!isSame) throw changed(this.name);
  }

  close(): Promise<void> {
    return this.handle.close();
  }
}

export function isInside(folder: string, path: string): boolean {
  const way = relative(folder, path);
  return way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}

/**
 * Returns whether the existing part of a path leads into `folder`, which is a real path. Errors distinguish "not found"
 * from "forbidden" only inside the folder, so that they reveal nothing about the rest of the disk.
 */
export async function leadsInto(folder: string, path: string): Promise<boolean> {
  return isInside(folder, await nearest(path, maxLinks));
}

/** Returns the real path of the last existing part of the path. Follows links even if their target does not exist. */
async function nearest(path: string, linksLeft: number): Promise<string> {
  const real = await realpath(path).catch(() => null);
  if (real !== null) return real;
  const target = linksLeft === 0 ? null : await readlink(path).catch(() => null);
  if (target === null) return nearest(dirname(path), linksLeft);
  return nearest(resolve(await realpath(dirname(path)), target), linksLeft - 1);
}

function realFile(path: string, name: string): Promise<string> {
  const missing = new ServerError("adapter_file_not_found", `there is no ${name}; expected it at the adapter's path`);
  const circular = new ServerError("invalid_adapter_file", `${name} is a link that leads nowhere`);
  return expecting({ ENOENT: missing, ENOTDIR: missing, ELOOP: circular }, () => realpath(path));
}

function forbidden(name: string): ServerError {
  return new ServerError(
    "adapter_file_forbidden",
    `${name} is a link out of the folder that adapters may be loaded from; put the file itself there`,
  );
}

function tooLarge(name: string, size: bigint, maxBytes: number): ServerError {
  return new ServerError(
    "lora_adapter_file_too_large",
    `${name} has ${size} bytes; at most ${maxBytes} are read: load a smaller one, or raise lora_max_bytes`,
  );
}

function changed(name: string): ServerError {
  return new ServerError(
    "adapter_file_changed",
    `${name} changed while it was read; wait until it is written, then try again`,
  );
}
