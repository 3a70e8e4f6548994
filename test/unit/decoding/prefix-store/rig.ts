// Prefix store rig: folders that are removed after the test, tokens and KV generated from a seed, and a listing of a folder's
// files.
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import type { PrefixContent, StoreModel } from "../../../../engines/decoding/prefix-store/prefix-file.ts";

export const model: StoreModel = { fingerprint: "a model", layout: "an engine" };
export const otherModel: StoreModel = { fingerprint: "another model", layout: "an engine" };

export const fileName = /^[0-9a-f]{32}\.troupe-kv$/;

export function temporaryFolder(test: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "troupe-store-"));
  test.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Returns tokens. Different seeds give different tokens, from the first token on. */
export function tokensOf(seed: number, count: number): Int32Array {
  return Int32Array.from({ length: count }, (_, i) => seed * 100_000 + i);
}

export function bytesOf(seed: number, count: number): Uint8Array {
  return Uint8Array.from({ length: count }, (_, i) => (seed * 31 + i * 7) % 256);
}

export function contentOf(seed: number, tokenCount = 100, byteCount = 1000): PrefixContent {
  return { adapter: "", tokens: tokensOf(seed, tokenCount), bytes: bytesOf(seed, byteCount) };
}

/** Returns the paths of all files below a folder. */
export function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}

export function totalBytes(folder: string): number {
  return filesIn(folder).reduce((sum, path) => sum + statSync(path).size, 0);
}
