// The part of node:fs that the engine uses. It reads the files in files.ts.
import { allFiles, bytesOf, fileAt, type TableFile } from "./files.ts";

const opened = new Map<number, TableFile>();
let next = 3;

export function openSync(path: string): number {
  opened.set(next, fileAt(path));
  return next++;
}

export function closeSync(descriptor: number): void {
  opened.delete(descriptor);
}

export function readSync(descriptor: number, into: Uint8Array, at: number, count: number, position: number): number {
  const file = opened.get(descriptor);
  if (file === undefined) throw new Error(`EBADF: no open file ${descriptor}`);
  const bytes = bytesOf(file, position, position + count);
  into.set(bytes, at);
  return bytes.length;
}

/** Reads a complete file. A URL refers to a WebAssembly module; its last segment is the file name. */
export function readFileSync(path: string | URL): Uint8Array {
  return bytesOf(fileAt(typeof path === "string" ? path : nameOf(path)));
}

export function existsSync(path: string): boolean {
  return allFiles().has(path);
}

export function readlinkSync(path: string): string {
  throw Object.assign(new Error(`ENOENT: no such link '${path}'`), { code: "ENOENT" });
}

function nameOf({ pathname }: URL): string {
  return pathname.slice(pathname.lastIndexOf("/") + 1);
}
