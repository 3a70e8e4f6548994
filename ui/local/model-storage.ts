// Storage of models in this browser: its private storage (OPFS), which only pages of this server's address can read. gguf-files.ts keeps
// files for the CPU there, gpu-files.ts folders for the GPU.
import type { Signal } from "@preact/signals";
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

interface Copy {
  /** Lock that the tab holds while it copies. */
  readonly lock: string;
  /** Shows the progress of the copy. */
  readonly copying: Signal<Copying | null>;
  isKept(): Promise<boolean>;
  /** Copies the model, and updates `copying`. */
  copy(stop: AbortController): Promise<void>;
}

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

/** Copies a model unless it was stopped. Throws if a model of this name is kept or being copied, or if the copy fails. */
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

/** Returns models in the order of their names. */
export function byName(models: readonly KeptModel[]): readonly KeptModel[] {
  return [...models].sort((a, b) => a.name.localeCompare(b.name));
}
