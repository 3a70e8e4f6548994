// Model files that this browser keeps: GGUF files in its private storage (OPFS), which only pages of this server's address can
// read. A file is copied into a folder of its own and moved when it is complete.
import { signal } from "@preact/signals";
import { withFreeLock } from "../base/lock.ts";

export interface KeptModel {
  readonly name: string;
  readonly bytes: number;
}

/** A model that is being copied into the browser. `bytes`: 0 until the copy has begun. */
export interface Copying {
  readonly name: string;
  readonly bytes: number;
  readonly done: number;
  readonly stop: AbortController;
}

/** Content of a model, and the number of its bytes. */
export interface ModelContent {
  readonly stream: ReadableStream<Uint8Array<ArrayBuffer>>;
  readonly bytes: number;
}

/** Models that are kept, by name; null: not read yet. */
export const keptModels = signal<readonly KeptModel[] | null>(null);
/** The copy that this tab makes; null: none. */
export const copying = signal<Copying | null>(null);

const kept = "models";
const partial = "partial";
const magic = "GGUF";

/** Whether this browser can keep files of models. */
export function canStore(): boolean {
  const writes = globalThis.FileSystemFileHandle?.prototype.createWritable !== undefined;
  return navigator.storage?.getDirectory !== undefined && writes;
}

/** Returns a folder of the private storage. */
export async function folder(name: string): Promise<FileSystemDirectoryHandle> {
  const root = await navigator.storage.getDirectory();
  return await root.getDirectoryHandle(name, { create: true });
}

function copyLock(name: string): string {
  return `troupe.copy.${name}`;
}

export async function readKeptModels(): Promise<void> {
  const found: KeptModel[] = [];
  for await (const [name, handle] of (await folder(kept)).entries()) {
    if (handle instanceof FileSystemFileHandle) found.push({ name, bytes: (await handle.getFile()).size });
  }
  keptModels.value = found.sort((a, b) => a.name.localeCompare(b.name));
  await removeLeftovers();
}

/** Removes the parts of copies that ended with their page. */
async function removeLeftovers(): Promise<void> {
  const parts = await folder(partial);
  for await (const name of parts.keys()) {
    // The browser adds an ending to the name of a file that it is writing.
    await withFreeLock(copyLock(name.replace(/\.crswap$/, "")), () => parts.removeEntry(name).catch(() => {}));
  }
}

/** Returns the file of a kept model; null: there is none with this name. */
export async function modelFile(name: string): Promise<File | null> {
  try {
    return await (await (await folder(kept)).getFileHandle(name)).getFile();
  } catch {
    return null;
  }
}

/**
 * Copies a model into the browser. Its progress is in `copying`. Throws if a model of this name is kept or being copied, if the
 * content is no GGUF file, or if the browser has no room for it.
 */
export async function keepModel(name: string, open: (signal: AbortSignal) => Promise<ModelContent>): Promise<void> {
  const stop = new AbortController();
  const isDone = await withFreeLock(copyLock(name), async () => {
    if ((await modelFile(name)) !== null) throw new Error(`${name} is kept already: delete it first`);
    copying.value = { name, bytes: 0, done: 0, stop };
    try {
      await copy(name, await open(stop.signal), stop);
    } catch (error) {
      if (!stop.signal.aborted) throw error;
    } finally {
      copying.value = null;
    }
    return true;
  });
  if (isDone === null) throw new Error(`${name} is being copied already`);
  await readKeptModels();
}

async function copy(name: string, { stream, bytes }: ModelContent, stop: AbortController): Promise<void> {
  const { signal } = stop;
  const parts = await folder(partial);
  try {
    await prepareRoom(bytes);
    const handle = await parts.getFileHandle(name, { create: true });
    const show = (done: number): void => {
      copying.value = { name, bytes, done, stop };
    };
    await stream.pipeThrough(checked(bytes, show), { signal }).pipeTo(await handle.createWritable(), { signal });
    await moved(handle, await folder(kept));
  } catch (error) {
    await stream.cancel().catch(() => {});
    await parts.removeEntry(name).catch(() => {});
    throw error;
  }
}

/** TypeScript does not know this method yet. */
async function moved(handle: FileSystemFileHandle, to: FileSystemDirectoryHandle): Promise<void> {
  await (handle as unknown as { move(to: FileSystemDirectoryHandle): Promise<void> }).move(to);
}

export async function dropModel(name: string): Promise<void> {
  await (await folder(kept)).removeEntry(name);
  await readKeptModels();
}

/** Throws if the browser has no room for a model. */
export async function prepareRoom(bytes: number): Promise<void> {
  const { quota = 0, usage = 0 } = await navigator.storage.estimate();
  if (quota - usage < bytes) {
    throw new Error(`the model has ${bytes} bytes, and this browser has room for ${Math.max(0, quota - usage)}`);
  }
  // The browser may otherwise delete the model when the disk is full. It may refuse; the model is then kept as long as there is
  // room.
  await navigator.storage.persist().catch(() => false);
}

/** Passes the content on. Fails if it does not begin like a GGUF file, or has another number of bytes than announced. */
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
