// Garbage collection on demand in a measured program: loaded with `--import` into each process and thread, it collects on SIGUSR2.
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { BroadcastChannel, isMainThread } from "node:worker_threads";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

// Signals reach the main thread alone, and every thread has a heap of its own.
const channel = new BroadcastChannel("collect-garbage");
channel.onmessage = () => collect();
channel.unref();
if (isMainThread) {
  process.on("SIGUSR2", () => {
    channel.postMessage(null);
    collect();
  });
}
