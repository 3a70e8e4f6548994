// Storage of models in this browser: the origin private file system (OPFS), which only pages of this server can access.
// gguf-files.ts stores files for the CPU there, gpu-files.ts folders for the GPU.
import type { Signal } from "@preact/signals";
import { withFreeLock } from "../base/lock.ts";

export interface KeptModel {
  readonly name: string;
  readonly bytes: number;
}

/** Copy of a model in progress. `bytes`: total size; 0 until the copy has begun. */
export interface Copying {
  readonly name: string;
  readonly bytes: number;
  readonly done: number;
  readonly stop: AbortController;
}

/** Content of a model, and its size in bytes. */
export interface ModelContent {
  readonly stream: ReadableStream<Uint8Array<ArrayBuffer>>;
  readonly bytes: number;
}

interface Copy {
  /** Name of the lock that the tab holds while it copies. */
  readonly lock: string;
  /** Progress of the copy; null before and after it. */
  readonly copying: Signal<Copying | null>;
  isKept(): Promise<boolean>;
  /** Copies the model and updates `copying`. `stop`: aborted to cancel the copy. */
  copy(stop: AbortController): Promise<void>;
}

/** Returns whether this browser can store model files. */
export function canStore(): boolean {
  const writes = globalThis.FileSystemFileHandle?.prototype.createWritable !== undefined;
  return navigator.storage?.getDirectory !== undefined && writes;
}

/** Returns a folder in the OPFS. Creates it if it does not exist. */
export async function folder(name: string): Promise<FileSystemDirectoryHandle> {
  const root = await navigator.storage.getDirectory();
  return await root.getDirectoryHandle(name, { create: true });
}

/** Throws if the browser has not enough storage for a model. */
export async function prepareRoom(bytes: number): Promise<void> {
  const { quota = 0, usage = 0 } = await navigator.storage.estimate();
  if (quota - usage < bytes) {
    throw new Error(`the model has ${bytes} bytes, and this browser has room for ${Math.max(0, quota - usage)}`);
  }
  // Without persistent storage, the browser may delete the model when the disk is full. The browser may refuse persistence; the
  // model is then stored until the space is needed.
  await navigator.storage.persist().catch(() => false);
}

/**
 * Copies a model, unless the copy is stopped. Throws if a model with this name is already stored or being copied, or if the
 * copy fails.
 */
export async function copyModel(name: string, { lock, copying, isKept, copy }: Copy): Promise<void> {
  const stop = new AbortController();
  const isDone = await withFreeLock(lock, async () => {
    if (await isKept()) throw new Error(`${name} is kept already: delete it first`);
    copying.value = { name, bytes: 0, done: 0, stop };
    try {
      await copy(stop);
    } catch (error) {
      if (!stop.signal.aborted) throw error;
    } finally {
      copying.value = null;
    }
    return true;
  });
  if (isDone === null) throw new Error(`${name} is being copied already`);
}

/** Returns models sorted by name. */
export function byName(models: readonly KeptModel[]): readonly KeptModel[] {
  return [...models].sort((a, b) => a.name.localeCompare(b.name));
}
