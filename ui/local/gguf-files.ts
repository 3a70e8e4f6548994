// GGUF files stored in this browser. A file is first copied to a separate folder, and moved when the copy is complete.
import { signal } from "@preact/signals";
import { withFreeLock } from "../base/lock.ts";
import {
  byName,
  type Copying,
  copyModel,
  folder,
  type KeptModel,
  type ModelContent,
  prepareRoom,
} from "./model-storage.ts";

/** Stored models, sorted by name; null until they have been read. */
export const keptModels = signal<readonly KeptModel[] | null>(null);
/** Copy in progress in this tab; null if there is none. */
export const copying = signal<Copying | null>(null);

const kept = "models";
const partial = "partial";
const magic = "GGUF";

function copyLock(name: string): string {
  return `troupe.copy.${name}`;
}

export async function readKeptModels(): Promise<void> {
  const found: KeptModel[] = [];
  for await (const [name, handle] of (await folder(kept)).entries()) {
    if (handle instanceof FileSystemFileHandle) found.push({ name, bytes: (await handle.getFile()).size });
  }
  keptModels.value = byName(found);
  await removeLeftovers();
}

/** Deletes incomplete copies whose page was closed. */
async function removeLeftovers(): Promise<void> {
  const parts = await folder(partial);
  for await (const name of parts.keys()) {
    // While the browser writes a file, it appends a suffix (.crswap) to the file name.
    await withFreeLock(copyLock(name.replace(/\.crswap$/, "")), () => parts.removeEntry(name).catch(() => {}));
  }
}

/** Returns the file of a stored model; null if there is none with this name. */
export async function modelFile(name: string): Promise<File | null> {
  try {
    return await (await (await folder(kept)).getFileHandle(name)).getFile();
  } catch {
    return null;
  }
}

/**
 * Copies a model into the browser, with the progress in `copying`. Throws if a model with this name is already stored or being
 * copied, if the content is not a GGUF file, or if there is not enough storage.
 */
export async function keepModel(name: string, open: (signal: AbortSignal) => Promise<ModelContent>): Promise<void> {
  await copyModel(name, {
    lock: copyLock(name),
    copying,
    isKept: async () => (await modelFile(name)) !== null,
    copy: async (stop) => copy(name, await open(stop.signal), stop),
  });
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

/** Moves a file to a folder. The cast is needed because TypeScript's types lack `move`. */
async function moved(handle: FileSystemFileHandle, to: FileSystemDirectoryHandle): Promise<void> {
  await (handle as unknown as { move(to: FileSystemDirectoryHandle): Promise<void> }).move(to);
}

export async function dropModel(name: string): Promise<void> {
  await (await folder(kept)).removeEntry(name);
  await readKeptModels();
}

/**
 * Returns a stream that passes content on. It fails if the content does not begin like a GGUF file, or if its size differs from
 * `bytes`.
 */
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
