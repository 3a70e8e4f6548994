// Globals of Node.js that the engine's sources use. Every worker must import this module first, because other modules use these
// globals when they are loaded.
import { Buffer } from "buffer/";

/** Callbacks of setImmediate. Each runs when a message arrives on a port, which is the shortest delay in browsers. */
const waiting: (() => void)[] = [];
const { port1, port2 } = new MessageChannel();
port1.onmessage = () => waiting.shift()?.();

function setImmediate(callback: (...values: unknown[]) => void, ...values: unknown[]): void {
  waiting.push(() => callback(...values));
  port2.postMessage(null);
}

/** Timer object as in Node.js. The browser's timer functions convert it to its id. */
class Timer {
  readonly #id: number;

  constructor(id: number) {
    this.#id = id;
  }

  /** Does nothing, because open timers do not keep a web worker running. */
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
    // The engine checks the version of V8, to work around bugs of old versions, which no browser with relaxed SIMD has. The
    // version of Node.js is absent, because the grammar library uses it to detect Node.js.
    versions: { v8: "13.0" },
    stderr: { write: (text: string) => console.error(text) },
  },
});
