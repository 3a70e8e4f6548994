// The state thread of a replica crashes while its bucket is unreachable: its state is back, and what the other replicas have asked
// meanwhile is answered.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Worker } from "node:worker_threads";
import { StateClient } from "../../../actors/front/state-client.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import { createLogger } from "../../../runtime/log/log.ts";
import { startRedis } from "../../fixtures/store/redis.ts";
import { lacksRedis } from "../../fixtures/store/redis-stores.ts";

const limits = { maxEntries: 100, maxBytes: 2 ** 24, maxEntryBytes: 2 ** 20, maxAgeMs: 1e9 };
const log = createLogger({ level: "silent", format: "text" });
const emptyBucket = '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></ListBucketResult>';
const call = { session: "session" };

describe("a replica whose state thread crashes while the bucket is unreachable", {
  skip: lacksRedis,
  timeout: 60_000,
}, () => {
  it("has its state again, and answers what other replicas have asked meanwhile", async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-state-restart-"));
    const redis = await startRedis();
    const s3 = createServer((_, reply) => void reply.setHeader("content-type", "application/xml").end(emptyBucket));
    await once(s3.listen(0, "127.0.0.1"), "listening");
    const { port } = s3.address() as AddressInfo;
    const files = {
      url: `s3://files?endpoint=http://127.0.0.1:${port}`,
      accessKeyId: "key",
      secretAccessKey: "secret",
    };
    const start = async (replica: string): Promise<StateClient> => {
      const shared = { url: redis.url, replica, leaseMs: 10_000, files };
      const places = { folder: join(folder, replica), mailboxLimit: 1000, responses: limits };
      const init = { ...places, maxFileContentBytes: 2 ** 20, skillsFolder: null, shared };
      const state = new StateClient({ init, log, minBackoffMs: 1 });
      await state.start();
      return state;
    };
    const workers: Worker[] = [];
    const onWorker = (worker: Worker): void => void workers.push(worker);
    process.on("worker", onWorker);
    const [crashing, asking] = [await start("crashing"), await start("asking")];
    process.off("worker", onWorker);
    t.after(async () => {
      await Promise.all([crashing, asking].map((state) => state.stop(1000)));
      await redis.stop();
      s3.close();
      rmSync(folder, { recursive: true, force: true });
    });
    crashing.replicas?.answer("pendingApprovals", () => ["a call"]);
    const ask = async (): Promise<unknown> => {
      const asked = asking.replicas?.ask(null, "pendingApprovals", call, false, true);
      return await asked?.catch((error: ServerError) => error.code);
    };
    assert.deepEqual(await ask(), [["a call"]]);
    s3.close();
    s3.closeAllConnections();
    await workers[0]?.terminate();
    // Until the new thread has subscribed, the replica does not answer. From then on, no question is without an answer.
    let answer = await ask();
    for (; answer === "storage_unavailable"; answer = await ask()) await sleep(5);
    assert.deepEqual(answer, [["a call"]]);
    assert.equal(await crashing.responses.find(`resp_${"0".repeat(32)}`), null);
  });
});
