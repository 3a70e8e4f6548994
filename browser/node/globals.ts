// Globals of Node.js that the sources of the engine use. The first import of every worker, because other modules use them when
// they are evaluated.
import { Buffer } from "buffer/";

const noArguments: readonly string[] = [];

/** Callbacks that wait for the next turn of the event loop. A message to a port is the shortest wait that browsers have. */
const waiting: (() => void)[] = [];
const { port1, port2 } = new MessageChannel();
port1.onmessage = () => waiting.shift()?.();

function setImmediate(callback: (...values: unknown[]) => void, ...values: unknown[]): void {
  waiting.push(() => callback(...values));
  port2.postMessage(null);
}

Object.assign(globalThis, {
  Buffer,
  setImmediate,
  process: {
    argv: noArguments,
    env: {},
    platform: "browser",
    // The engine asks V8 for its version, to avoid faults of old ones. Browsers with relaxed SIMD have none of them.
    versions: { node: "24.0.0", v8: "13.0" },
    stderr: { write: (text: string) => console.error(text) },
  },
});
