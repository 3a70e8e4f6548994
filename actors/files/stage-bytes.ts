// Staged bytes: writes bytes as a new file to the staging folder of the file store.
import { randomUUID } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ServerError } from "../../runtime/errors.ts";

/** Writes a file whose name begins with `prefix`. Returns its name. On failure, leaves no file and throws storage_unavailable. */
export async function stageBytes(stagingFolder: string, prefix: string, bytes: Uint8Array): Promise<string> {
  const staged = `${prefix}-${randomUUID()}`;
  const path = join(stagingFolder, staged);
  try {
    await writeFile(path, bytes, { flag: "wx", mode: 0o600 });
    return staged;
  } catch (error) {
    await rm(path, { force: true }).catch(() => {});
    const { code } = error as NodeJS.ErrnoException;
    const message = `the file cannot be stored now (${code}); try again soon`;
    throw new ServerError("storage_unavailable", message, { cause: error });
  }
}
