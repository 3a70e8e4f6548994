// Temporary file, for a program that reads its input from a path.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Writes bytes to a file in a new folder and calls `use` with the path. Only this user can read the file. Removes the file and
 * the folder when `use` has settled. `name`: name of the file; the folder's name begins with troupe-NAME-.
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
