// Responses that are not in the shared store yet although a client already knows their id: another replica waits for the write.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type {
  AnswerReplica,
  PublishedEvents,
  QuestionKind,
  Replicas,
} from "../../../../../actors/api/state/replicas.ts";
import type { StoredResponses } from "../../../../../actors/api/stored-responses.ts";
import { itemTexts } from "../../../../../http/responses/request/item-texts.ts";
import type { ResponsePlan } from "../../../../../http/responses/response-run.ts";
import { Responses } from "../../../../../http/responses/responses.ts";
import { FollowedLog } from "../../../../../http/responses/stored/followed-log.ts";
import { AnswerMemory } from "../../../../../http/shared/answer/answer-memory.ts";
import { ServerError } from "../../../../../runtime/errors.ts";
import { done, finish, text } from "../../../../fixtures/fakes/fake-inference.ts";
import { altered, memoryResponses } from "../../../../fixtures/fakes/memory-responses.ts";
import { recordingLog } from "../../../../fixtures/http-server.ts";
import { testTokens } from "../../../../fixtures/text/logprobs.ts";
import { whole } from "../responses-rig.ts";

const id = `resp_${"7".repeat(32)}`;

function plan(): ResponsePlan {
  const content = [{ type: "input_text" as const, text: "hi" }];
  return {
    ...{ head: { id, createdAt: 1, model: "m", settings: Buffer.from("}") }, client: "client" },
    ...{ previousId: null, inputStart: "hi", isStored: true, isBackground: false, restart: null, isStreamed: false },
    input: itemTexts([{ type: "message", id: `${id}_0`, role: "user", status: "completed", content }]),
    ...{ hasExtensions: true, onItems: null, tokenTexts: () => testTokens, lease: new AnswerMemory().lease("client") },
  } as unknown as ResponsePlan;
}

/** Returns two replicas that answer each other's questions. */
function linked(): readonly [Replicas, Replicas] {
  const handlers = [0, 1].map(() => new Map<QuestionKind, AnswerReplica<QuestionKind>>());
  const replica = (own: number): Replicas => ({
    id: String(own),
    health: () => ({ isConnected: true, reason: "" }),
    wasLost: () => false,
    restored: async () => {},
    publish: async () => {},
    follow: async () => null,
    ask: async (_to, kind, question) => {
      const answer = (await handlers[1 - own]?.get(kind)?.(question as never)) ?? null;
      return answer === null ? [] : [answer];
    },
    answer: (kind, handler) => void handlers[own]?.set(kind, handler as AnswerReplica<QuestionKind>),
    metrics: async () => [],
  });
  return [replica(0), replica(1)];
}

function responses(store: StoredResponses, replicas: Replicas): Responses {
  return new Responses({ store, replicas, log: recordingLog(), maxBackground: 2, saveRetryMs: 5 });
}

describe("a response that the shared store does not have yet", () => {
  it("is found at another replica when the store is back", async () => {
    const [one, other] = linked();
    const store = memoryResponses();
    let failures = 6;
    const failing = altered(store, {
      add: async (response) => {
        if (failures-- > 0) throw new ServerError("storage_unavailable", "the shared state is lost");
        await store.add(response);
      },
    });
    const [first, second] = [responses(failing, one), responses(store, other)];
    for (const read of [
      () => second.history(id),
      () => whole(second.body(id)),
      () => second.inputItems({ id, order: "asc", after: null, limit: 10 }),
      () => second.delete(id),
    ]) {
      failures = 6;
      await store.delete(id);
      first.begin(plan()).encode([text("Hello"), finish(), done]);
      assert.equal(await store.find(id), null);
      await read();
      assert.ok(failures < 0);
    }
    assert.equal(await store.find(id), null, "a deleted response is not stored later");
  });

  it("is deleted by the replica that generated it if the store is lost while another one deletes it", async () => {
    const [one, other] = linked();
    // View of the second replica on the store: every response is running on another replica, and deletions fail.
    const store = memoryResponses();
    const elsewhere = altered(store, {
      find: async (asked) => {
        const found = await store.find(asked);
        return found === null ? null : { ...found, runner: "elsewhere" };
      },
      delete: async () => {
        throw new ServerError("storage_unavailable", "the shared state is lost");
      },
    });
    let failures = 1;
    const owned = altered(store, {
      delete: async (asked) => {
        if (failures-- > 0) throw new ServerError("storage_unavailable", "the shared state is lost");
        return await store.delete(asked);
      },
    });
    const [first, second] = [responses(owned, one), responses(elsewhere, other)];
    const run = await first.beginBackground({ ...plan(), isBackground: true }, 100);
    await assert.rejects(second.delete(id), { code: "storage_unavailable" });
    assert.ok(run.isEnded);
    await sleep(1000);
    assert.equal(await store.find(id), null, "it would be shown as running");
  });

  it("is found once another replica has written it again", async () => {
    const [one, other] = linked();
    const store = memoryResponses();
    responses(memoryResponses(), {
      ...one,
      restored: async () => {
        await sleep(300);
        const run = responses(store, one).begin(plan());
        run.encode([text("Hello"), finish(), done]);
        await run.held();
      },
    });
    assert.match(await whole(responses(store, other).body(id)), /Hello/);
  });

  it("is not found if no replica has it, and may be stored later if one does", async () => {
    const [one, other] = linked();
    const second = responses(memoryResponses(), one);
    responses(memoryResponses(), other);
    await assert.rejects(second.history(id), { code: "previous_response_not_found" });
    await assert.rejects(whole(second.body(id)), { code: "not_found" });
    let isLost = true;
    const soon = responses(memoryResponses(), {
      ...one,
      ask: async () => [],
      wasLost: () => isLost,
    });
    const reading = whole(soon.body(id));
    let isRefused = false;
    reading.catch(() => {
      isRefused = true;
    });
    await sleep(400);
    assert.equal(isRefused, false, "a replica may not be connected again yet");
    isLost = false;
    await assert.rejects(reading, { code: "not_found" });
    const waiting = responses(memoryResponses(), { ...one, ask: async () => [true] });
    await assert.rejects(waiting.history(id), { code: "storage_unavailable" });
  });
});

describe("a response that another replica generates", () => {
  it("is followed to its end on the replica that takes it over, also if its first output takes long", async () => {
    const [one, other] = linked();
    const store = memoryResponses();
    let isElsewhere = true;
    const shared = altered(store, {
      find: async (asked) => {
        const found = await store.find(asked);
        return found === null || !isElsewhere ? found : { ...found, runner: "elsewhere" };
      },
    });
    const streamed = (): ResponsePlan => ({ ...plan(), isBackground: true, isStreamed: true });
    await responses(store, one).beginBackground(streamed(), 100);
    const published: PublishedEvents[] = [];
    let checks = 0;
    const second = responses(shared, {
      ...other,
      publish: async (events) => void published.push(events),
      follow: async ({ after, waitMs }) => {
        const found = published.filter(({ next }) => next - 1 > after);
        if (found.length === 0) checks++;
        if (found.length === 0) await sleep(Math.min(waitMs, 10));
        return found.length === 0 ? null : found;
      },
    });
    const log = await second.events(id, -1);
    assert.ok(log instanceof FollowedLog);
    let seen = "";
    const reading = (async () => {
      for await (const _ of log.batches(new AbortController().signal)) {
        seen += log.encode();
        if (log.isEnded) return;
      }
    })();
    // The other replica ends, and this one claims the response and begins it.
    const run = await second.beginBackground(streamed(), 100);
    isElsewhere = false;
    // Several checks find no event.
    for (const enough = checks + 5; checks < enough; ) await Promise.race([reading, sleep(10)]);
    run.encode([text("Hello"), finish(), done]);
    await reading;
    assert.match(seen, /Hello.*response\.completed.*\[DONE\]/s);
  });
});
