// Owns one open file of an adapter: found, checked against the folder it must lie in and its size, opened without waiting for
// anything, read at places, and looked at once more when all has been read. The client named the path, so nothing of it is
// believed: what counts is what was opened.
import { type BigIntStats, constants } from "node:fs";
import { type FileHandle, open, readlink, realpath, stat } from "node:fs/promises";
import { dirname, isAbsolute, relative, resolve, sep } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { expecting } from "./adapter-problems.ts";

export interface FileLimits {
  /** Real path of the folder it must lie in; null where any will do. */
  readonly root: string | null;
  readonly maxBytes: number;
}

/** As many as operating systems follow. */
const maxLinks = 40;
/** node:fs takes no more at a time than 2^31 - 1. */
const maxReadBytes = 2 ** 30;

export class SourceFile {
  readonly handle: FileHandle;
  /** What errors call it. */
  readonly name: string;
  readonly size: number;
  readonly #before: BigIntStats;

  private constructor(handle: FileHandle, name: string, before: BigIntStats) {
    this.handle = handle;
    this.name = name;
    this.size = Number(before.size);
    this.#before = before;
  }

  /** Throws the codes adapter_file_*, invalid_adapter_file and lora_adapter_file_too_large. */
  static async open(path: string, name: string, { root, maxBytes }: FileLimits): Promise<SourceFile> {
    const real = await realFile(path, name).catch(async (error: unknown) => {
      throw root === null || (await leadsInto(root, path)) ? error : forbidden(name);
    });
    if (root !== null && !isInside(root, real)) throw forbidden(name);
    const before = await stat(real, { bigint: true });
    if (!before.isFile()) throw new ServerError("invalid_adapter_file", `${name} is no regular file; name one that is`);
    if (before.size > maxBytes) throw tooLarge(name, before.size, maxBytes);
    // A pipe that took the file's place just now must not be waited for, and a link not be followed.
    const flags = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW;
    const gone = changed(name);
    const handle = await expecting({ ELOOP: gone, ENOENT: gone, ENXIO: gone }, () => open(real, flags));
    try {
      const file = new SourceFile(handle, name, before);
      await file.checkUnchanged();
      // Folders on the way can have become links since. Where the system does not say what it opened, the path must do.
      if ((await readlink(`/proc/self/fd/${handle.fd}`).catch(() => realpath(real))) !== real) throw changed(name);
      return file;
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /** Fills `into` with the bytes from `position`. */
  async read(into: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < into.length; ) {
      const length = Math.min(into.length - done, maxReadBytes);
      const { bytesRead } = await this.handle.read(into, done, length, position + done);
      if (bytesRead === 0) throw changed(this.name);
      done += bytesRead;
    }
  }

  /** Throws adapter_file_changed where it is not what it was before it was opened. */
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
 * Whether a path with nothing at its end leads into the folder, a real path, as far as it leads. What is not there is told
 * apart from what is forbidden inside the folder alone: the rest of the disk is nobody's business.
 */
export async function leadsInto(folder: string, path: string): Promise<boolean> {
  return isInside(folder, await nearest(path, maxLinks));
}

/** The real path of the last thing that is there on the way, and on that of a link that leads nowhere. */
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
    `${name} has ${size} bytes, where up to ${maxBytes} are read; load a smaller one, or raise lora_max_bytes`,
  );
}

function changed(name: string): ServerError {
  return new ServerError(
    "adapter_file_changed",
    `${name} changed while it was read; wait until it is written, then try again`,
  );
}
