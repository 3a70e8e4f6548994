// File staging: copies a file from a work folder to the staging folder of the file store. Code written by the model controls the
// work folder, so links that lead out of the folder are not followed, and every limit is checked.
import { randomBytes } from "node:crypto";
import { type FileHandle, open, rm } from "node:fs/promises";
import { join } from "node:path";
import { type FileToStore, fileLimits } from "../../api/agent/files.ts";
import { openFile } from "./folder-files.ts";

const PIECE_BYTES = 256 * 1024;

export type StageFailure = NonNullable<FileToStore["failure"]>;

/** Copies a file. Returns the name of the copy in the staging folder, or the reason why the file was not copied. */
export async function stage(
  folder: string,
  name: string,
  stagingFolder: string,
  isCancelled: () => boolean,
): Promise<string | StageFailure> {
  let file: FileHandle | null;
  try {
    file = await openFile(folder, name);
  } catch {
    return notAFile(name);
  }
  if (file === null) return { code: "not_produced", message: `the tool did not create the file ${name}` };
  const staged = `output-${randomBytes(16).toString("hex")}`;
  const copy = join(stagingFolder, staged);
  try {
    const found = await file.stat();
    // A file with several hard links may also exist outside the work folder.
    if (!found.isFile() || found.nlink > 1) return notAFile(name);
    if (found.size > fileLimits.maxFileBytes) {
      const limit = `at most ${fileLimits.maxFileBytes} are kept`;
      return { code: "too_large", message: `${name} has ${found.size} bytes; ${limit}` };
    }
    if (await copied(file, copy, isCancelled)) return staged;
    return { code: "too_large", message: `${name} grew while it was copied` };
  } catch (error) {
    await rm(copy, { force: true });
    const reason = error instanceof Error ? error.message : String(error);
    return { code: "storage_unavailable", message: `${name} could not be stored: ${reason}` };
  } finally {
    await file.close();
  }
}

/** Removes the copies of files that will not be stored. */
export async function unstage(files: readonly FileToStore[], stagingFolder: string): Promise<void> {
  const copies = files.flatMap(({ staged }) => (staged === null ? [] : [join(stagingFolder, staged)]));
  await Promise.all(copies.map((copy) => rm(copy, { force: true })));
}

function notAFile(name: string): StageFailure {
  return { code: "not_a_file", message: `${name} is not a readable regular file of the working directory` };
}

/** Copies at most maxFileBytes bytes of a file. Returns whether the whole file was copied. Throws if the copy cannot be written. */
async function copied(from: FileHandle, path: string, isCancelled: () => boolean): Promise<boolean> {
  const to = await open(path, "wx", 0o600);
  try {
    const buffer = Buffer.allocUnsafe(PIECE_BYTES);
    for (let at = 0; at <= fileLimits.maxFileBytes; ) {
      if (isCancelled()) throw new Error("the call was cancelled");
      const { bytesRead } = await from.read(buffer, 0, PIECE_BYTES, at);
      if (bytesRead === 0) return true;
      await to.writeFile(buffer.subarray(0, bytesRead));
      at += bytesRead;
    }
  } finally {
    await to.close();
  }
  await rm(path, { force: true });
  return false;
}
