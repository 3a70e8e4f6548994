// Files that a worker can read, in a table by name; paths are names in this table. A worker gets the table from the worker that
// starts it.

export interface TableFile {
  readonly content: Blob;
  /** Size of the complete file in bytes. `content` may contain only its beginning. */
  readonly bytes: number;
}

const files = new Map<string, TableFile>();

/** Adds or replaces a file. Workers that are started later also get it. */
export function addFile(path: string, content: Blob, bytes = content.size): void {
  files.set(path, { content, bytes });
}

export function fileAt(path: string): TableFile {
  const file = files.get(path);
  if (file === undefined) throw Object.assign(new Error(`ENOENT: no such file, open '${path}'`), { code: "ENOENT" });
  return file;
}

export function allFiles(): ReadonlyMap<string, TableFile> {
  return files;
}

/** Returns the bytes from `start` to `end`. Blocks this thread. */
export function bytesOf({ content }: TableFile, start = 0, end = content.size): Uint8Array<ArrayBuffer> {
  return new Uint8Array(new FileReaderSync().readAsArrayBuffer(content.slice(start, end)));
}
