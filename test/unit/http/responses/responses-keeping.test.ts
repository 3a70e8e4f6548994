import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import type { StoredResponses } from "../../../../actors/api/stored-responses.ts";
import type { GenerateEvent } from "../../../../engines/generation.ts";
import { itemTexts } from "../../../../http/responses/request/item-texts.ts";
import type { ResponsePlan } from "../../../../http/responses/response-run.ts";
import { Responses, type ResponsesOptions } from "../../../../http/responses/responses.ts";
import { EventLog } from "../../../../http/responses/stored/event-log.ts";
import { FollowedLog } from "../../../../http/responses/stored/followed-log.ts";
import type { Piece } from "../../../../http/server/write-piece.ts";
import { AnswerMemory } from "../../../../http/shared/answer/answer-memory.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { done, finish, text } from "../../../fixtures/fakes/fake-inference.ts";
import { altered, memoryResponses } from "../../../fixtures/fakes/memory-responses.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";
import { testTokens } from "../../../fixtures/text/logprobs.ts";
import { type Json, whole } from "./responses-rig.ts";

const requestBytes = 100;
let count = 0;

function plan(kind: Partial<ResponsePlan> = {}): ResponsePlan {
  const id = `resp_${String(count++).padStart(32, "0")}`;
  const content = [{ type: "input_text" as const, text: "hi" }];
  return {
    head: {
      id,
      createdAt: 1,
      model: "m",
      settings: Buffer.from(`,"background":${kind.isBackground ?? false}}`),
      namespacedNames: new Map(),
      includesSources: false,
    },
    client: "client",
    previousId: null,
    input: itemTexts([{ type: "message", id: `${id}_0`, role: "user", status: "completed", content }]),
    inputStart: "hi",
    isStored: true,
    isBackground: false,
    restart: null,
    isStreamed: true,
    hasExtensions: true,
    onItems: null,
    tokenTexts: () => testTokens,
    lease: new AnswerMemory().lease("client"),
    ...kind,
  };
}

/** Returns the events of a response that is long because of its logprobs. */
function long(): readonly GenerateEvent[] {
  const token = { token: "x", bytes: [120], logprob: -1, top: [] };
  return [text("x", 0, new Array(1000).fill(token)), finish(), done];
}

const inBackground = { isBackground: true };
const saying = (content = "Hello"): readonly GenerateEvent[] => [text(content), finish(), done];

interface Rig {
  readonly store: StoredResponses;
  readonly log: ReturnType<typeof recordingLog>;
  readonly responses: Responses;
}

/** Returns a rig whose store fails. `broken`: returns the error of a save, given the number of the attempt. */
function rig(
  broken: { add?: (n: number) => unknown; update?: (n: number) => unknown } = {},
  { store = memoryResponses(), ...options }: Partial<ResponsesOptions> = {},
): Rig {
  const log = recordingLog();
  const tries = { add: 0, update: 0 };
  const orFail = async <T>(name: "add" | "update", save: () => Promise<T>): Promise<T> => {
    const error = broken[name]?.(++tries[name]);
    if (error) throw error;
    return await save();
  };
  const failing = altered(store, {
    add: (response) => orFail("add", () => store.add(response)),
    update: (response) => orFail("update", () => store.update(response)),
  });
  return {
    store,
    log,
    responses: new Responses({ store: failing, log, maxBackground: 2, saveRetryMs: 1, ...options }),
  };
}

const shown = async (responses: Responses, id: string): Promise<Json> => JSON.parse(await whole(responses.body(id)));

async function keptEvents(responses: Responses, id: string): Promise<AsyncIterable<Piece>> {
  const events = await responses.events(id, -1);
  assert.ok(!(events instanceof EventLog || events instanceof FollowedLog));
  return events;
}

const isCode = (code: string) => (error: unknown) => error instanceof ServerError && error.code === code;

describe("the response saver", () => {
  it("retries a failed save until the store is back, and logs it once", async () => {
    // While a store thread restarts on a busy machine, several attempts fail.
    const { responses, log } = rig({ update: (n) => n <= 5 && new Error("disk full") });
    const run = responses.begin(plan());
    run.encode([text("Hel")]);
    run.encode([text("lo"), finish(), done]);
    const { status, output_text } = await shown(responses, run.id);
    assert.deepEqual([status, output_text], ["completed", "Hello"]);
    assert.deepEqual(
      log.lines.map(({ level, fields }) => [level, fields.response]),
      [["error", run.id]],
    );
  });

  it("reports a response whose end could not be stored as interrupted, never as running", async () => {
    for (const kind of [{}, inBackground]) {
      const { responses, log } = rig({ update: () => new Error("disk full") });
      const { id, ...made } = plan(kind).head;
      const run =
        kind === inBackground
          ? await responses.beginBackground({ ...plan(kind), head: { id, ...made } }, requestBytes)
          : responses.begin({ ...plan(kind), head: { id, ...made } });
      run.encode([text("Hel")]);
      assert.equal((await shown(responses, id)).status, "in_progress");
      await assert.rejects(async () => await responses.history(id), isCode("conflict"));
      run.encode([finish(), done]);
      const { status, incomplete_details } = await shown(responses, id);
      assert.deepEqual([status, incomplete_details], ["incomplete", { reason: "interrupted" }]);
      assert.equal((await responses.history(id)).length, 1);
      await assert.rejects(whole(responses.cancel(id)), isCode("not_found"));
      assert.equal(log.lines.length, 1);
    }
  });

  it("sends no text with the id before the store has the response", async () => {
    const store = memoryResponses();
    let saved = (): void => {};
    const { responses } = rig(
      {},
      {
        store: altered(store, {
          add: async (response) => {
            await new Promise<void>((resolve) => {
              saved = resolve;
            });
            await store.add(response);
          },
        }),
      },
    );
    const run = responses.begin(plan());
    run.encode([text("Hel")]);
    let isSent = false;
    const sent = Promise.resolve(run.held()).then(() => {
      isSent = true;
    });
    await turn();
    assert.equal(isSent, false);
    saved();
    await sent;
    assert.equal(run.held(), null);
    assert.notEqual(await store.find(run.id), null);
  });

  it("waits with the first text until a save succeeds, if the store is unavailable only briefly", async () => {
    const { responses, store, log } = rig({ add: (n) => n <= 4 && new Error("not up yet") });
    const run = responses.begin(plan());
    run.encode([text("Hel")]);
    await run.held();
    assert.notEqual(await store.find(run.id), null);
    assert.deepEqual(log.lines, []);
  });

  it("stores at the end a response that could not be stored before", async () => {
    const { responses, store } = rig({ add: (n) => n <= 5 && new Error("not up yet") });
    const run = responses.begin(plan());
    run.encode([text("Hel")]);
    await run.held();
    assert.equal(await store.find(run.id), null);
    run.encode([text("lo"), finish(), done]);
    assert.equal((await shown(responses, run.id)).output_text, "Hello");
  });

  it("stores an evicted response again with a warning, but not a deleted one", async () => {
    const { responses, log } = rig({}, { store: memoryResponses({ maxEntries: 1 }) });
    const [first, other] = [responses.begin(plan()), responses.begin(plan())];
    first.encode([text("Hel")]);
    other.encode(saying());
    assert.equal((await shown(responses, other.id)).status, "completed");
    first.encode([text("lo"), finish(), done]);
    assert.equal((await shown(responses, first.id)).output_text, "Hello");
    assert.deepEqual(
      log.lines.map(({ level, fields }) => [level, fields.response]),
      [["warn", first.id]],
    );
    for (const isEnded of [false, true]) {
      const run = responses.begin(plan());
      run.encode(isEnded ? saying() : [text("Hel")]);
      await responses.delete(run.id);
      run.encode(saying());
      await assert.rejects(whole(responses.body(run.id)), isCode("not_found"), `isEnded: ${isEnded}`);
    }
  });

  it("drops the events, then the output, of a too large response, with a warning", async () => {
    const limits = { maxEntryBytes: 20_000 };
    for (const [length, status, output] of [
      [1000, "completed", 1000],
      [4000, "completed", 4000],
      [30_000, "failed", 0],
    ] as const) {
      const { responses, log } = rig({}, { store: memoryResponses(limits) });
      const run = await responses.beginBackground(plan(inBackground), requestBytes);
      run.encode(saying("x".repeat(length)));
      const body = await shown(responses, run.id);
      assert.deepEqual([body.status, body.output_text.length], [status, output]);
      assert.equal(body.error?.code, status === "failed" ? "invalid_value" : undefined);
      if (length === 1000) assert.match(await whole(await keptEvents(responses, run.id)), /response\.completed/);
      else await assert.rejects(keptEvents(responses, run.id), isCode("not_found"));
      assert.equal(log.lines.length, length === 1000 ? 0 : 1);
      assert.equal((await responses.history(run.id)).length, 1);
    }
  });

  it("refuses to continue a response that ends while the conversation is read", async () => {
    const store = memoryResponses();
    const { history } = store;
    store.history = async (id) => {
      const turns = await history.call(store, id);
      run.encode(saying());
      await responses.saver.settled(id);
      return turns;
    };
    const { responses } = rig({}, { store });
    const run = responses.begin(plan());
    run.encode([text("Hel")]);
    await assert.rejects(responses.history(run.id), isCode("conflict"));
    assert.match(Buffer.from((await responses.history(run.id))[0]!.texts).toString(), /Hello/);
  });

  it("saves two long responses at once, fairly between clients, and short ones meanwhile", async () => {
    const inner = memoryResponses({ maxBytes: 2 ** 26, maxEntryBytes: 2 ** 25 });
    const begun: string[] = [];
    const blocked: (() => void)[] = [];
    const store = altered(inner, {
      add: async (response) => {
        begun.push(response.client);
        if (response.body.byteLength > 10_000) await new Promise<void>((resolve) => blocked.push(resolve));
        await inner.add(response);
      },
    });
    const { responses } = rig({}, { store });
    const ended = (client: string, events: readonly GenerateEvent[]): string => {
      const run = responses.begin(plan({ client, isStreamed: false }));
      run.encode(events);
      return run.id;
    };
    const crowd = Array.from({ length: 6 }, () => ended("crowd", long()));
    const [bystander, short] = [ended("bystander", long()), ended("short", saying())];
    assert.equal((await shown(responses, short)).output_text, "Hello");
    for (let i = 0; i < 100 && blocked.length < 2; i++) await turn();
    assert.deepEqual(begun.toSorted(), ["crowd", "crowd", "short"]);
    while (blocked.length > 0) {
      assert.ok(blocked.length <= 2);
      blocked.shift()?.();
      for (let i = 0; i < 100 && blocked.length < 2; i++) await turn();
    }
    assert.ok(begun.indexOf("bystander") <= 5, String(begun));
    const bodies = await Promise.all([...crowd, bystander].map((id) => shown(responses, id)));
    assert.ok(bodies.every(({ output }) => output[0].content[0].logprobs.length === 1000));
  });

  it("saves other responses during a retry", async () => {
    const inner = memoryResponses({ maxBytes: 2 ** 26, maxEntryBytes: 2 ** 25 });
    let tries = 0;
    const store = altered(inner, {
      add: async (response) => {
        if (response.client === "crowd" && ++tries <= 20) throw new Error("disk full");
        await inner.add(response);
      },
    });
    const { responses } = rig({}, { store, saveRetryMs: 300 });
    const ids = Array.from({ length: 20 }, () => {
      const run = responses.begin(plan({ client: "crowd", isStreamed: false }));
      run.encode(long());
      return run.id;
    });
    const own = responses.begin(plan({ client: "bystander", isStreamed: false }));
    own.encode(long());
    assert.equal((await shown(responses, own.id)).status, "completed");
    assert.ok(tries <= 20, `${tries} tries`);
    // All requests wait for the same retry.
    const started = performance.now();
    for (const id of ids) assert.equal((await shown(responses, id)).status, "completed");
    assert.ok(performance.now() - started < 3000);
  });

  it("stores a short record at once if there is no room to wait, and everything if there is", async () => {
    const inner = memoryResponses();
    let isFull = true;
    const store = altered(inner, {
      add: async (response) => {
        if (isFull && response.status === "completed") throw new Error("disk full");
        await inner.add(response);
      },
    });
    const { responses, log } = rig({}, { store, saveRetryMs: 20, maxWaitingBytes: 30_000 });
    const ended = (client: string): string => {
      const run = responses.begin(plan({ client, isStreamed: false }));
      run.encode(saying("x".repeat(10_000)));
      return run.id;
    };
    const [first, second, other] = [ended("client"), ended("client"), ended("other")];
    const short = await shown(responses, second);
    assert.deepEqual([short.status, short.error.code, short.output], ["failed", "storage_unavailable", []]);
    assert.deepEqual(log.lines.filter(({ message }) => /too many bytes/.test(message)).length, 1);
    isFull = false;
    for (const id of [first, other]) assert.equal((await shown(responses, id)).output_text.length, 10_000);
    assert.equal((await shown(responses, ended("client"))).output_text.length, 10_000);
  });

  it("limits the bytes of background requests until they end", async () => {
    const { responses } = rig({}, { maxBackgroundBytes: 150 });
    const first = await responses.beginBackground(plan(inBackground), 100);
    await assert.rejects(responses.beginBackground(plan(inBackground), 51), isCode("queue_full"));
    const second = await responses.beginBackground(plan(inBackground), 50);
    first.encode(saying());
    await responses.delete(second.id);
    await responses.beginBackground(plan(inBackground), 150);
  });
});
