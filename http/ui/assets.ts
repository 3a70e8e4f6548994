// Files of the web UI (dist/ui), and of the engine that it runs in the browser (dist/browser). Both are built by `npm run
// build`. All files are read at the first request and kept in memory, so that client input never becomes part of a file path.
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";

export interface UiFile {
  readonly contentType: string;
  readonly body: Uint8Array;
  /** File content compressed with brotli; null if the file is served only uncompressed. */
  readonly brotli: Uint8Array | null;
  readonly etag: string;
  /** Whether the file name contains a hash of the content. Such a file may be cached forever. */
  readonly isHashed: boolean;
}

export const pageName = "index.html";

const folders = ["ui", "browser"].map((name) => fileURLToPath(new URL(`../../${name}`, import.meta.url)));
const compressedEnd = ".br";
const contentTypes: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
  ".wasm": "application/wasm",
  ".woff2": "font/woff2",
  ".woff": "font/woff",
  ".ttf": "font/ttf",
};

let files: Promise<ReadonlyMap<string, UiFile>> | null = null;

/** Returns the files by name. The map is empty if the UI was not built. */
export function uiFiles(): Promise<ReadonlyMap<string, UiFile>> {
  files ??= readFiles().catch((error: unknown) => {
    // The next request tries to read the files again.
    files = null;
    throw error;
  });
  return files;
}

async function readFiles(): Promise<ReadonlyMap<string, UiFile>> {
  const found = await Promise.all(folders.map(readFolder));
  return new Map(found.flatMap((files) => [...files]));
}

async function readFolder(folder: string): Promise<ReadonlyMap<string, UiFile>> {
  const names: readonly string[] = await readdir(folder).catch(() => []);
  const found = new Map<string, UiFile>();
  for (const name of names) {
    const contentType = contentTypes[extname(name)];
    if (contentType === undefined) continue;
    const body = await readFile(join(folder, name));
    const compressed = `${name}${compressedEnd}`;
    const brotli = names.includes(compressed) ? await readFile(join(folder, compressed)) : null;
    const etag = `"${createHash("sha256").update(body).digest("hex").slice(0, 16)}"`;
    found.set(name, { contentType, body, brotli, etag, isHashed: /-[\w-]{8}\.\w+$/.test(name) });
  }
  return found;
}
