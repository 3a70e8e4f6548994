// Model files that this browser keeps: GGUF files in its private storage (OPFS), which only pages of this server's address can
// read.
import { signal } from "@preact/signals";

export interface KeptModel {
  readonly name: string;
  readonly bytes: number;
}

/** Models that are kept, by name; null: not read yet. */
export const keptModels = signal<readonly KeptModel[] | null>(null);

const folderName = "models";
const magic = "GGUF";

async function folder(): Promise<FileSystemDirectoryHandle> {
  const root = await navigator.storage.getDirectory();
  return await root.getDirectoryHandle(folderName, { create: true });
}

export async function readKeptModels(): Promise<void> {
  const found: KeptModel[] = [];
  for await (const [name, handle] of (await folder()).entries()) {
    if (!(handle instanceof FileSystemFileHandle)) continue;
    const { size } = await handle.getFile();
    // A file without content belongs to a copy that is in progress, or that was cut off.
    if (size > 0) found.push({ name, bytes: size });
  }
  keptModels.value = found.sort((a, b) => a.name.localeCompare(b.name));
}

/** Returns the file of a kept model; null: there is none with this name. */
export async function modelFile(name: string): Promise<File | null> {
  try {
    return await (await (await folder()).getFileHandle(name)).getFile();
  } catch {
    return null;
  }
}

/**
 * Keeps a model. The file is visible only when it is complete. `onBytes` gets the number of bytes so far. Throws if the content is
 * no GGUF file, or the browser has no room for it.
 */
export async function keepModel(
  name: string,
  content: ReadableStream<Uint8Array<ArrayBuffer>>,
  bytes: number,
  signal: AbortSignal,
  onBytes: (bytes: number) => void,
): Promise<void> {
  await checkRoom(bytes);
  // The browser may otherwise delete the file when the disk is full. It may refuse; the file is then kept as long as there is room.
  await navigator.storage.persist().catch(() => false);
  const handle = await (await folder()).getFileHandle(name, { create: true });
  try {
    await content
      .pipeThrough(checked(bytes, onBytes), { signal })
      .pipeTo(await handle.createWritable({ keepExistingData: false }), { signal });
  } catch (error) {
    if ((await handle.getFile()).size === 0) await (await folder()).removeEntry(name);
    throw error;
  } finally {
    await readKeptModels();
  }
}

export async function dropModel(name: string): Promise<void> {
  await (await folder()).removeEntry(name);
  await readKeptModels();
}

async function checkRoom(bytes: number): Promise<void> {
  const { quota = 0, usage = 0 } = await navigator.storage.estimate();
  if (quota - usage >= bytes) return;
  throw new Error(`the model has ${bytes} bytes, and this browser has room for ${Math.max(0, quota - usage)}`);
}

/** Passes the content on. Fails if it does not begin like a GGUF file, or has fewer bytes than announced. */
function checked(bytes: number, onBytes: (bytes: number) => void) {
  let count = 0;
  return new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
    transform(chunk, controller) {
      if (count === 0 && !isModel(chunk)) throw new Error("the file is no GGUF model");
      count += chunk.length;
      onBytes(count);
      controller.enqueue(chunk);
    },
    flush() {
      if (count !== bytes) throw new Error(`the file ended after ${count} of ${bytes} bytes`);
    },
  });
}

function isModel(start: Uint8Array): boolean {
  return new TextDecoder("latin1").decode(start.subarray(0, magic.length)) === magic;
}
