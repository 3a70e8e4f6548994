// Globals of Node.js that the sources of the engine use. The first import of every worker, because other modules use them when
// they are evaluated.
import { Buffer } from "buffer/";

/** Callbacks that wait for the next turn of the event loop. A message to a port is the shortest wait that browsers have. */
const waiting: (() => void)[] = [];
const { port1, port2 } = new MessageChannel();
port1.onmessage = () => waiting.shift()?.();

function setImmediate(callback: (...values: unknown[]) => void, ...values: unknown[]): void {
  waiting.push(() => callback(...values));
  port2.postMessage(null);
}

/** Timer as Node.js has it. The browser's functions take it as its number. */
class Timer {
  readonly #id: number;

  constructor(id: number) {
    this.#id = id;
  }

  /** A worker of a page does not end by itself. */
  unref(): this {
    return this;
  }

  valueOf(): number {
    return this.#id;
  }
}

const plainInterval = globalThis.setInterval as unknown as (callback: () => void, ms: number) => number;

Object.assign(globalThis, {
  Buffer,
  setInterval: (callback: () => void, ms: number) => new Timer(plainInterval(callback, ms)),
  setImmediate,
  process: {
    env: {},
    // The engine asks V8 for its version, to avoid faults of old ones. Browsers with relaxed SIMD have none of them. There is no
    // version of Node.js, because the grammar library tells by it where it runs.
    versions: { v8: "13.0" },
    stderr: { write: (text: string) => console.error(text) },
  },
});
