// Event loop probe inside a server, loaded with `--import`. It replies to each message of the benchmark with the delays since
// the previous message.
import { isMainThread } from "node:worker_threads";
import { watchLoopDelay } from "../loop-delay.ts";

// Worker threads load this module too, but have no benchmark process to reply to.
if (isMainThread && process.send) {
  const takeDelay = watchLoopDelay();
  process.on("message", () => process.send?.(takeDelay()));
  process.channel?.unref();
}
