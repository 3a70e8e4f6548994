// Event loop probe inside a server: loaded with `--import`, it answers each message of the benchmark with the delays since the last
// one.
import { isMainThread } from "node:worker_threads";
import { watchLoopDelay } from "../loop-delay.ts";

// Worker threads load it too, and have no benchmark to answer.
if (isMainThread && process.send) {
  const takeDelay = watchLoopDelay();
  process.on("message", () => process.send?.(takeDelay()));
  process.channel?.unref();
}
