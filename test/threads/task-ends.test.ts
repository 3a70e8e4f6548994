// Text workers that exit while they load modules: the process survives, and no module file stays open.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync, readlinkSync } from "node:fs";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { textWorkerModule } from "../../actors/placement.ts";
import { TaskPool } from "../../runtime/task/task-pool.ts";

const translators = new URL("../../http/shared/body-translators.js", import.meta.url).href;

/** Returns the paths of the module files that are open in this process. */
function openModules(): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const path = readlinkSync(`/proc/self/fd/${fd}`);
      return /\.(m?js|json)$/.test(path) ? [path] : [];
    } catch {
      return [];
    }
  });
}

describe("text workers that are ended while they load modules", { skip: process.platform !== "linux" }, () => {
  it("leave no file open, and the process lives, if the thread that started them exits", async () => {
    for (const endsAfterMs of [0, 2, 5, 10, 20, 40, 80, 120, 160, 240, 320, 480]) {
      const thread = new Worker(new URL("../fixtures/actors/ending-pool.js", import.meta.url), {
        workerData: { translators, endsAfterMs },
      });
      const [code] = (await once(thread, "exit")) as [number];
      assert.equal(code, 1);
      assert.deepEqual(openModules(), [], `${endsAfterMs} ms after the start`);
    }
  });

  it("leave no file open if their pool is closed", async () => {
    for (const closesAfterMs of [0, 5, 20, 80, 160, 320]) {
      const pool = new TaskPool({
        ...{ name: "text", module: textWorkerModule, init: { translators }, heapMiB: 64 },
        ...{ quickWorkers: 2, slowWorkers: 1, quickMs: 60_000, limitMs: 60_000, loadLimitMs: 60_000 },
        ...{ maxQueued: 10, maxQueuedName: "queue" },
      });
      const body = Buffer.from('{"messages":[{"role":"user","content":"hi"}]}');
      const input = { protocol: "chat", body, parameters: { parameters: {}, unknownFields: "ignore" } };
      const running = pool.run({ kind: "translate", input, client: "a" }).catch(() => {});
      await sleep(closesAfterMs);
      await pool.close();
      await running;
      await sleep(200); // let the workers exit
      assert.deepEqual(openModules(), [], `${closesAfterMs} ms after the start`);
    }
  });
});
