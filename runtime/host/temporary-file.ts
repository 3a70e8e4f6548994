// Temporary file: bytes that a program reads from a path.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Writes bytes to a file that only this user can read, in a folder of its own, and removes both when `use` has settled. `name`: of
 * the file, and part of the folder's name (troupe-NAME-).
 */
export async function withTemporaryFile<T>(
  name: string,
  bytes: Uint8Array,
  use: (path: string) => Promise<T>,
): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), `troupe-${name}-`));
  try {
    const path = join(folder, name);
    await writeFile(path, bytes, { mode: 0o600 });
    return await use(path);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
