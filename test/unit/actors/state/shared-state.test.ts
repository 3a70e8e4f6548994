// Questions (requests for an answer) that a replica sends to other replicas through Redis, while one of them is starting or
// restarting its state thread.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { SharedState, type SharedStateReport } from "../../../../actors/state/shared/shared-state.ts";
import type { DeferredReply } from "../../../../runtime/actor/deferred-reply.ts";
import { startRedis } from "../../../fixtures/store/redis.ts";
import { lacksRedis } from "../../../fixtures/store/redis-stores.ts";

/** Message context, which these handlers do not use. */
const none = null as never;

describe("a replica", { skip: lacksRedis }, () => {
  for (const isRestart of [false, true]) {
    const name = isRestart
      ? "passes questions on while its state thread is being restarted"
      : "has no answer until its main thread can give one";
    it(name, async (t) => {
      const redis = await startRedis();
      const questions: unknown[] = [];
      const init = { url: redis.url, leaseMs: 10_000 };
      const asker = await SharedState.open({ ...init, replica: "asker" }, () => {});
      const onReport = (report: SharedStateReport): void => {
        if (report.kind !== "question") return;
        questions.push(report.content);
        other.behaviour().answered({ number: report.number, value: "yes", error: null }, none);
      };
      const other: SharedState = await SharedState.open({ ...init, replica: "other" }, onReport, isRestart);
      t.after(async () => {
        await asker.behaviour().onStop?.();
        await other.behaviour().onStop?.();
        await redis.stop();
      });
      await sleep(50);
      const ask = async (): Promise<unknown> => {
        const question = { to: null, content: "q", isFirstEnough: true, needsAll: true };
        return await (asker.behaviour().ask(question, none) as DeferredReply<readonly unknown[]>).reply;
      };
      assert.deepEqual([await ask(), questions], isRestart ? [["yes"], ["q"]] : [[], []]);
      other.ready();
      assert.deepEqual([await ask(), questions.at(-1)], [["yes"], "q"]);
    });
  }
});
