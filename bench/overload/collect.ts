// Garbage collection on demand in a measured program. This module is loaded with `--import` into each process and thread, and
// collects on SIGUSR2.
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { BroadcastChannel, isMainThread } from "node:worker_threads";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

// Only the main thread receives signals. Every thread has a separate heap, so the main thread tells the others to collect.
const channel = new BroadcastChannel("collect-garbage");
channel.onmessage = () => collect();
channel.unref();
if (isMainThread) {
  process.on("SIGUSR2", () => {
    channel.postMessage(null);
    collect();
  });
}
