// The part of node:fs/promises that the engine uses. It reads the files in files.ts.
import { bytesOf, fileAt } from "./files.ts";

interface ReadOptions {
  readonly position: number;
}

export async function open(path: string) {
  const file = fileAt(path);
  return {
    stat: async () => ({ size: file.bytes, isFile: () => true }),
    read: async (into: Uint8Array, { position }: ReadOptions) => {
      const bytes = bytesOf(file, position, position + into.length);
      into.set(bytes);
      return { bytesRead: bytes.length };
    },
    readFile: async () => await file.content.text(),
    close: async () => {},
  };
}

export async function readFile(path: string): Promise<string> {
  return await fileAt(path).content.text();
}
