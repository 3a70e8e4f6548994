// Files that a worker can read: a path is a name in this table. A worker gets the table from the worker that starts it.

const files = new Map<string, Blob>();

/** Adds a file. A worker that is started later has it too. */
export function addFile(path: string, content: Blob): void {
  files.set(path, content);
}

export function fileAt(path: string): Blob {
  const file = files.get(path);
  if (file === undefined) throw Object.assign(new Error(`ENOENT: no such file, open '${path}'`), { code: "ENOENT" });
  return file;
}

export function allFiles(): ReadonlyMap<string, Blob> {
  return files;
}

/** Returns the bytes from `start` to `end`. Blocks this thread. */
export function bytesOf(file: Blob, start = 0, end = file.size): Uint8Array<ArrayBuffer> {
  return new Uint8Array(new FileReaderSync().readAsArrayBuffer(file.slice(start, end)));
}
