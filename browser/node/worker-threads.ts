// The part of node:worker_threads that the engine uses, implemented with web workers. The first message to a worker contains
// its table of files.
import "./globals.ts";
import { addFile, allFiles, type TableFile } from "./files.ts";

type Listener = (value: unknown) => void;

interface Start {
  readonly files: ReadonlyMap<string, TableFile>;
  readonly data: unknown;
}

class Listeners {
  readonly #byName = new Map<string, Set<Listener>>();

  on(name: string, listener: Listener): this {
    const listeners = this.#byName.get(name) ?? new Set();
    this.#byName.set(name, listeners.add(listener));
    return this;
  }

  once(name: string, listener: Listener): this {
    const first: Listener = (value) => {
      this.off(name, first);
      listener(value);
    };
    return this.on(name, first);
  }

  off(name: string, listener: Listener): this {
    this.#byName.get(name)?.delete(listener);
    return this;
  }

  protected has(name: string): boolean {
    return (this.#byName.get(name)?.size ?? 0) > 0;
  }

  protected emit(name: string, value: unknown): void {
    for (const listener of [...(this.#byName.get(name) ?? [])]) listener(value);
  }
}

export class Worker extends Listeners {
  readonly #worker: globalThis.Worker;
  #hasEnded = false;

  constructor(url: URL, { workerData: data = null }: { readonly workerData?: unknown } = {}) {
    super();
    this.#worker = new globalThis.Worker(url, { type: "module" });
    this.#worker.onmessage = ({ data }) => this.emit("message", data);
    this.#worker.onerror = (event) => {
      event.preventDefault();
      // The event has no message if the worker's script could not be loaded.
      this.emit("error", new Error(event.message || "its script could not be loaded from the server"));
      this.#end(1);
    };
    this.#worker.postMessage({ files: allFiles(), data } satisfies Start);
  }

  postMessage(message: unknown, transfer: Transferable[] = []): void {
    this.#worker.postMessage(message, transfer);
  }

  async terminate(): Promise<number> {
    this.#worker.terminate();
    this.#end(1);
    return 1;
  }

  #end(code: number): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.emit("exit", code);
  }
}

class ParentPort extends Listeners {
  /** Messages that no listener has received yet. */
  readonly #waiting: unknown[] = [];
  #arrived: () => void = () => {};

  constructor() {
    super();
    globalThis.onmessage = ({ data }: MessageEvent) => {
      this.#waiting.push(data);
      this.#arrived();
      this.#deliver();
    };
  }

  override on(name: string, listener: Listener): this {
    super.on(name, listener);
    this.#deliver();
    return this;
  }

  postMessage(message: unknown, transfer: Transferable[] = []): void {
    globalThis.postMessage(message, { transfer });
  }

  take(): { readonly message: unknown } | undefined {
    return this.#waiting.length === 0 ? undefined : { message: this.#waiting.shift() };
  }

  /** Resolves when a message is waiting. */
  async arrival(): Promise<void> {
    if (this.#waiting.length > 0) return;
    await new Promise<void>((resolve) => {
      this.#arrived = resolve;
    });
  }

  #deliver(): void {
    while (this.#waiting.length > 0 && this.has("message")) this.emit("message", this.#waiting.shift());
  }
}

/** Port to the worker that started this one; null in the worker that the page starts, whose messages serve-page.ts handles. */
export const parentPort: ParentPort | null = globalThis.name === "page" ? null : new ParentPort();

/** Data passed by the worker that started this one. */
export const workerData: unknown = await startData();

/** Returns the next message; undefined if there is none. It must have arrived in an earlier turn of the event loop. */
export function receiveMessageOnPort(port: ParentPort): { readonly message: unknown } | undefined {
  return port.take();
}

/** Waits for the first message, adds the files in it to the table, and returns its data. */
async function startData(): Promise<unknown> {
  if (parentPort === null) return null;
  await parentPort.arrival();
  const { files, data } = (parentPort.take() as { readonly message: Start }).message;
  for (const [path, { content, bytes }] of files) addFile(path, content, bytes);
  return data;
}
