// The part of node:worker_threads that the engine uses, on web workers. The first message to a worker is its table of files.
import "./globals.ts";
import { addFile, allFiles } from "./files.ts";

type Listener = (value: unknown) => void;

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

  protected emit(name: string, value: unknown): void {
    for (const listener of [...(this.#byName.get(name) ?? [])]) listener(value);
  }
}

export class Worker extends Listeners {
  readonly #worker: globalThis.Worker;
  #hasEnded = false;

  constructor(url: URL) {
    super();
    this.#worker = new globalThis.Worker(url, { type: "module" });
    this.#worker.onmessage = ({ data }) => this.emit("message", data);
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.emit("error", new Error(event.message));
      this.#end(1);
    };
    this.#worker.postMessage(allFiles());
  }

  postMessage(message: unknown, transfer: Transferable[] = []): void {
    this.#worker.postMessage(message, transfer);
  }

  async terminate(): Promise<number> {
    this.#worker.terminate();
    this.#end(1);
    return 1;
  }

  ref(): void {}

  unref(): void {}

  #end(code: number): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.emit("exit", code);
  }
}

class ParentPort extends Listeners {
  constructor() {
    super();
    globalThis.onmessage = ({ data }: MessageEvent) => {
      globalThis.onmessage = ({ data: message }: MessageEvent) => this.emit("message", message);
      for (const [path, file] of data as ReturnType<typeof allFiles>) addFile(path, file);
    };
  }

  postMessage(message: unknown, transfer: Transferable[] = []): void {
    globalThis.postMessage(message, { transfer });
  }
}

/** Port to the worker that started this one. The worker that the page starts has its own messages: it does not use the port. */
export const parentPort: ParentPort | null = globalThis.name === "page" ? null : new ParentPort();

/** Always null: a web worker gets no data with its start. Only the loader of LoRA adapters reads it, and pages load none. */
export const workerData: null = null;
