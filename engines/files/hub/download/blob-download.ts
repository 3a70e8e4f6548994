// Blob download: fetches one file of the hub into the cache's blobs. A file gets its final name only when it is
// complete and verified. One process at a time fetches a file; other processes wait and then use the result. Called by
// hub-model.ts.
import { mkdir, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";
import type { RemoteFile } from "../api/hub-api.ts";
import { sizeOf } from "../api/hub-cache.ts";
import type { HubContext } from "../api/hub-context.ts";
import type { FetchOptions } from "./fetch-options.ts";
import { withFileLock } from "./file-lock.ts";
import { hashFile } from "./hash-file.ts";
import { transferParts } from "./part-transfer.ts";
import { PartialFile, partialBytes } from "./partial-file.ts";

export interface BlobDownload {
  readonly context: HubContext;
  readonly file: RemoteFile;
  readonly blob: string;
  /** Folder for the lock file. */
  readonly locks: string;
  /** Called with the number of bytes of this file fetched so far. */
  readonly onBytes: (doneBytes: number) => void;
  readonly onNotice: FetchOptions["onNotice"];
  readonly onVerify: FetchOptions["onProgress"];
}

/** Checks that the disk has room for the missing bytes of the files. Throws `config_invalid` if not. */
export async function checkRoom(
  directory: string,
  files: readonly { blob: string; file: RemoteFile }[],
): Promise<void> {
  let neededBytes = 0;
  for (const { blob, file } of files) {
    const isHere = (await sizeOf(blob)) === file.sizeBytes;
    if (!isHere) neededBytes += file.sizeBytes - (await partialBytes(blob, file.sizeBytes));
  }
  const { bavail, bsize } = await statfs(directory);
  if (neededBytes > bavail * bsize) throw noRoom(directory, neededBytes, bavail * bsize);
}

/** Fetches the blob if it does not exist. Returns whether it already existed. */
export async function downloadBlob(download: BlobDownload): Promise<{ wasThere: boolean }> {
  const { context, file, blob, locks, onNotice } = download;
  if ((await sizeOf(blob)) === file.sizeBytes) return { wasThere: true };
  await mkdir(dirname(blob), { recursive: true });
  const options = {
    pollMs: context.limits.lockPollMs,
    signal: context.signal,
    onWait: () => onNotice?.(`another process is fetching "${file.path}"; waiting for it`),
  };
  return await withFileLock(join(locks, `${file.etag}.partial.lock`), options, async () => {
    // Another process may have fetched the blob while this one waited for the lock.
    const wasThere = (await sizeOf(blob)) === file.sizeBytes;
    if (!wasThere && !(await fetchOnce(download)) && !(await fetchOnce(download))) throw wrongBytes(file);
    return { wasThere };
  });
}

/**
 * Fetches and verifies the file once. Returns false if the content of a resumed download is wrong. A new download may
 * then succeed, because bytes that an earlier process wrote can be lost in a power failure.
 */
async function fetchOnce(download: BlobDownload): Promise<boolean> {
  const { context, file, blob, onBytes } = download;
  const partial = await PartialFile.open(blob, file.sizeBytes, context.limits);
  let isRight: boolean;
  try {
    onBytes(partial.doneBytes);
    await transferParts({ context, file, partial, onBytes: () => onBytes(partial.doneBytes) });
    isRight = await isAsPromised(download, partial.path);
  } catch (error) {
    const isFull = (error as NodeJS.ErrnoException).code === "ENOSPC";
    // Closing keeps the fetched bytes for the next attempt, unless the progress record cannot be written.
    await partial.close().catch(() => undefined);
    throw isFull ? noRoom(dirname(blob), file.sizeBytes, 0) : error;
  }
  if (isRight) await partial.finish(blob);
  else await partial.discard();
  if (isRight || partial.isResumed) return isRight;
  throw wrongBytes(file);
}

async function isAsPromised({ file, context, onVerify }: BlobDownload, path: string): Promise<boolean> {
  if (file.sha256 === null) return true;
  return (await hashFile(path, file.sizeBytes, onVerify, context.signal)) === file.sha256;
}

function wrongBytes({ path, sha256 }: RemoteFile): ServerError {
  const message = `"${path}" does not match its sha256 ${sha256}; the download was discarded: try again`;
  return new ServerError("model_source_unreachable", message, { param: "model_id" });
}

function noRoom(directory: string, neededBytes: number, freeBytes: number): ServerError {
  const gigabytes = (bytes: number) => `${(bytes / 1e9).toFixed(2)} GB`;
  const free = freeBytes > 0 ? ` and ${gigabytes(freeBytes)} are free` : " and the disk is full";
  const advice = "make room, or set HF_HUB_CACHE to a directory on a larger disk";
  return new ServerError("config_invalid", `${gigabytes(neededBytes)} are needed in "${directory}"${free}; ${advice}`);
}
