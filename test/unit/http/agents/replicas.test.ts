// Approvals on several replicas that share a real Redis: decisions and lists reach the replica of the run, or fail by name.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Agents, ApprovalDecision, ApprovalRequest } from "../../../../actors/api/agent/agents.ts";
import type { AnswerReplica, QuestionKind, Replicas } from "../../../../actors/api/state/replicas.ts";
import { SharedState } from "../../../../actors/state/shared/shared-state.ts";
import { answerReplicas, decide, pending } from "../../../../http/agent/replicas.ts";
import type { DeferredReply } from "../../../../runtime/actor/deferred-reply.ts";
import { RedisConnection } from "../../../../runtime/store/redis/redis-connection.ts";
import { ReplicaLease } from "../../../../runtime/store/redis/replica-lease.ts";
import { startRedis } from "../../../fixtures/store/redis.ts";
import { lacksRedis } from "../../../fixtures/store/redis-stores.ts";

/** Message context, which these handlers do not use. */
const none = null as never;
const approve: ApprovalDecision = {
  decision: "approve",
  message: null,
  rememberForSession: false,
  content: null,
  arguments: null,
};

/** Returns agents whose calls wait for approval. `waiting`: ids of the calls. */
function agentsWith(waiting: string[]): Agents {
  return {
    decide: (id: string) => (waiting.includes(id) ? "resolved" : "not_found"),
    pending: () => waiting.map((id) => ({ approval_id: id }) as unknown as ApprovalRequest),
  } as unknown as Agents;
}

async function open(t: TestContext, url: string, replica: string, agents: Agents): Promise<Replicas> {
  const handlers = new Map<QuestionKind, AnswerReplica<QuestionKind>>();
  const state: SharedState = await SharedState.open({ url, replica, leaseMs: 10_000 }, async (report) => {
    if (report.kind !== "question") return;
    const { kind, question } = report.content as { kind: QuestionKind; question: never };
    const value = (await handlers.get(kind)?.(question)) ?? null;
    state.behaviour().answered({ number: report.number, value, error: null }, none);
  });
  state.ready();
  t.after(() => state.behaviour().onStop?.());
  const replicas = {
    ask: (to, kind, question, isFirstEnough, needsAll = false) => {
      const asked = { to, content: { kind, question }, isFirstEnough, needsAll };
      return (state.behaviour().ask(asked, none) as DeferredReply<readonly unknown[]>).reply;
    },
    answer: (kind, handler) => void handlers.set(kind, handler as AnswerReplica<QuestionKind>),
  } as Pick<Replicas, "ask" | "answer"> as Replicas;
  answerReplicas(replicas, agents);
  return replicas;
}

describe("approvals on several replicas", { skip: lacksRedis }, () => {
  it("are unavailable, not unknown, while a replica that may have the call is not subscribed", async (t) => {
    const redis = await startRedis();
    t.after(() => redis.stop());
    const agents = agentsWith([]);
    const replicas = await open(t, redis.url, "asked", agents);
    const calls: string[] = [];
    await open(t, redis.url, "other", agentsWith(calls));
    // This replica has its lease, but is still subscribing.
    const connection = await RedisConnection.open(redis.url, [], () => {});
    t.after(() => connection.close());
    const away = new ReplicaLease(connection, "away", 10_000);
    await away.start();
    await sleep(50);
    await assert.rejects(decide(agents, replicas, "call", approve), { code: "storage_unavailable" });
    await assert.rejects(pending(agents, replicas, "session"), { code: "storage_unavailable" });
    assert.equal((await pending(agentsWith(["own"]), replicas, "session")).length, 1);
    calls.push("call");
    assert.equal(await decide(agents, replicas, "call", approve), "resolved");
    assert.equal((await pending(agents, replicas, "session")).length, 1);
    calls.pop();
    await away.stop();
    assert.equal(await decide(agents, replicas, "call", approve), "not_found");
    assert.deepEqual(await pending(agents, replicas, "session"), []);
  });
});
