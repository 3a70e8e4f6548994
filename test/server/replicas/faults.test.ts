// Replica faults: a replica crashes or stops; Redis is killed and restarted, does not respond, or loses its data.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { lacksRedis } from "../../fixtures/store/redis-stores.ts";
import { Follower, jsonBody, post, type Replica, type ReplicaRig, startReplicas } from "./rig.ts";

const LEASE_MS = 1000;
/** Additional time in ms for heartbeats, polls and a loaded machine. */
const SLACK_MS = 4000;

let rig: ReplicaRig;

const replica = (index: number): Replica => rig.replicas[index] as Replica;
const create = (index: number, input: string): Follower =>
  new Follower(`${replica(index).url}/v1/responses`, jsonBody({ input, background: true, stream: true, tools: [] }));

interface Run {
  readonly id: string;
  readonly creator: Follower;
}

async function started(index: number, input: string): Promise<Run> {
  const creator = create(index, input);
  const first = await creator.first(({ response }) => response !== undefined);
  return { id: first?.response?.id ?? "", creator };
}

const follow = (index: number, id: string): Follower =>
  new Follower(`${replica(index).url}/v1/responses/${id}?stream=true`);

async function shown(index: number, id: string): Promise<{ readonly http: number; readonly status: string }> {
  const reply = await fetch(`${replica(index).url}/v1/responses/${id}`);
  const body = (await reply.json()) as { status?: string; error?: { code?: string } };
  return { http: reply.status, status: body.status ?? body.error?.code ?? "" };
}

/** Repeats a check until it holds. */
async function until(check: () => Promise<boolean>, what: string, limitMs = 10_000): Promise<number> {
  const began = performance.now();
  while (!(await check())) {
    if (performance.now() - began > limitMs) assert.fail(`not within ${limitMs} ms: ${what}`);
    await sleep(20);
  }
  return performance.now() - began;
}

function assertWhole(stream: Follower, what: string): void {
  const numbers = stream.events.map(({ sequence_number }) => sequence_number);
  assert.deepEqual(
    numbers,
    numbers.map((_, i) => i),
    what,
  );
}

const metric = async (index: number, name: string): Promise<number> => {
  const text = await (await fetch(`${replica(index).url}/metrics`)).text();
  return Number(new RegExp(`^service_store_${name} (\\d+)`, "m").exec(text)?.[1]);
};

describe("replicas", { skip: lacksRedis, timeout: 120_000 }, () => {
  before(async () => {
    rig = await startReplicas(2, { leaseMs: LEASE_MS, aof: true });
  });
  after(async () => {
    await rig.stop();
  });

  it("show the runs of a killed replica as interrupted when its lease ends, and end their streams with an error", async () => {
    const runs = await Promise.all([0, 1, 2].map(() => started(0, "words 2000 wait 10")));
    const other = await started(1, "words 40 wait 30");
    const followers = runs.map(({ id }) => follow(1, id));
    await Promise.all(followers.map((stream) => stream.first(({ delta }) => delta !== undefined)));
    for (const { id } of runs) assert.equal((await shown(1, id)).status, "queued");
    await rig.kill(0);
    const tookMs = await until(
      async () =>
        (await Promise.all(runs.map(({ id }) => shown(1, id)))).every(({ status }) => status === "incomplete"),
      "the runs are interrupted",
    );
    assert.ok(tookMs < LEASE_MS + SLACK_MS, `${tookMs} ms`);
    for (const stream of followers) {
      assert.equal(await stream.ended, true);
      assertWhole(stream, "events before the error");
      const last = stream.events.at(-1);
      assert.deepEqual([last?.type, last?.code], ["error", "peer_gone"]);
    }
    await other.creator.ended;
    assert.equal(other.creator.events.at(-1)?.type, "response.completed");
    await rig.replace(0);
  });

  it("end the runs of a replica that stops as incomplete, also for followers", async () => {
    const { id } = await started(0, "words 2000 wait 10");
    const stream = follow(1, id);
    await stream.first(({ delta }) => delta !== undefined);
    replica(0).process.kill("SIGTERM");
    assert.equal(await stream.ended, true);
    assertWhole(stream, "events");
    assert.equal(stream.events.at(-1)?.type, "response.incomplete");
    assert.equal((await shown(1, id)).status, "incomplete");
    await rig.replace(0);
  });

  it("keep their streams and lose no response while Redis is restarted", async () => {
    const ended = await started(0, "words 2 wait 0");
    await ended.creator.ended;
    const runs = await Promise.all([1, 2, 3].map(() => started(0, "words 150 wait 20")));
    // This response ends while Redis is down.
    const short = await started(0, "words 40 wait 20");
    const followers = runs.map(({ id }) => follow(1, id));
    await Promise.all(followers.map((stream) => stream.first(({ delta }) => delta !== undefined)));
    await rig.redis.kill();
    await until(async () => (await shown(1, ended.id)).status === "storage_unavailable", "reads fail by name");
    assert.equal((await shown(1, ended.id)).http, 503);
    const began = performance.now();
    const refused = await post(`${replica(1).url}/v1/responses`, { input: "x", background: true, tools: [] });
    assert.equal(((await refused.json()) as { error: { code: string } }).error.code, "storage_unavailable");
    const ready = await fetch(`${replica(1).url}/ready`);
    assert.deepEqual([ready.status, /degraded: the shared state/.test(await ready.text())], [200, true]);
    assert.equal((await fetch(`${replica(1).url}/health`)).status, 200);
    const chat = await post(`${replica(1).url}/v1/chat/completions`, {
      messages: [{ role: "user", content: "words 2 wait 0" }],
    });
    assert.equal(chat.status, 200, await chat.clone().text());
    const unstored = await post(`${replica(1).url}/v1/responses`, { input: "words 2 wait 0", store: false, tools: [] });
    assert.equal(unstored.status, 200, await unstored.clone().text());
    assert.ok(performance.now() - began < 2000, "nothing waits for the lost store");
    assert.equal(await metric(1, "connected"), 0);
    await short.creator.ended;
    assert.equal(short.creator.events.at(-1)?.type, "response.completed");
    await rig.redis.start();
    await Promise.all([...runs.map(({ creator }) => creator.ended), ...followers.map((stream) => stream.ended)]);
    for (const stream of [...runs.map(({ creator }) => creator), ...followers]) {
      assertWhole(stream, "all events");
      assert.equal(stream.events.at(-1)?.type, "response.completed");
    }
    for (const { id } of [ended, short, ...runs]) {
      for (const index of [0, 1]) {
        await until(async () => (await shown(index, id)).status === "completed", `${id} on replica ${index}`);
      }
    }
    assert.deepEqual([await metric(1, "connected"), (await metric(1, "reconnects_total")) >= 1], [1, true]);
    assert.ok((await metric(1, "errors_total")) > 0);
  });

  it("do not wait for a Redis that does not respond", async () => {
    const ended = await started(0, "words 2 wait 0");
    await ended.creator.ended;
    const run = await started(0, "words 400 wait 20");
    rig.redis.process.kill("SIGSTOP");
    try {
      // The first command to Redis waits for its time limit; later commands fail at once.
      await until(async () => (await shown(0, ended.id)).status === "storage_unavailable", "reads fail");
      const began = performance.now();
      assert.equal((await shown(0, ended.id)).status, "storage_unavailable");
      assert.equal((await fetch(`${replica(0).url}/health`)).status, 200);
      assert.ok(performance.now() - began < 1000, `${performance.now() - began} ms`);
      const count = run.creator.events.length;
      await until(async () => run.creator.events.length > count, "the stream goes on", 2000);
    } finally {
      rig.redis.process.kill("SIGCONT");
    }
    await until(async () => (await shown(0, ended.id)).status === "completed", "reads work again");
    await run.creator.ended;
    assertWhole(run.creator, "events");
    assert.equal(run.creator.events.at(-1)?.type, "response.completed");
    await until(async () => (await shown(0, run.id)).status === "completed", "stored");
  });

  it("continue after Redis has lost its data: earlier ids are unknown, running responses are stored at their end", async () => {
    const ended = await started(0, "words 2 wait 0");
    await ended.creator.ended;
    const run = await started(0, "words 30 wait 20");
    await run.creator.first(({ delta }) => delta !== undefined);
    await rig.redis.flush();
    assert.equal((await shown(1, ended.id)).http, 404);
    await run.creator.ended;
    await until(async () => (await shown(1, run.id)).status === "completed", "stored again");
    const next = await started(1, "words 3 wait 5");
    const stream = follow(0, next.id);
    assert.equal(await stream.ended, true);
    assertWhole(stream, "events");
    assert.equal(stream.events.at(-1)?.type, "response.completed");
  });

  it("share files, skills and sessions", async () => {
    const content = "shared text ".repeat(150_000);
    const upload = new FormData();
    upload.set("purpose", "user_data");
    upload.set("file", new Blob([content]), "notes.txt");
    const file = (await (await fetch(`${replica(0).url}/v1/files`, { method: "POST", body: upload })).json()) as {
      id: string;
    };
    assert.equal(await (await fetch(`${replica(1).url}/v1/files/${file.id}/content`)).text(), content);
    assert.equal((await fetch(`${replica(1).url}/v1/files/${file.id}`, { method: "DELETE" })).status, 200);
    assert.equal((await fetch(`${replica(0).url}/v1/files/${file.id}/content`)).status, 404);

    const skill = new FormData();
    const text = "---\nname: greet\ndescription: Greets people\n---\nSay hello.\n";
    skill.append("files[]", new Blob([text]), "greet/SKILL.md");
    const added = (await (await fetch(`${replica(0).url}/v1/skills`, { method: "POST", body: skill })).json()) as {
      id: string;
    };
    const archive = await fetch(`${replica(1).url}/v1/skills/${added.id}/content`);
    assert.equal(archive.status, 200);
    assert.ok(Buffer.from(await archive.arrayBuffer()).includes("greet/SKILL.md"));

    const chat = { messages: [{ role: "user", content: "tool words 1 wait 0" }], session_id: "shared-session" };
    assert.equal((await post(`${replica(0).url}/v1/chat/completions`, chat)).status, 200);
    const session = await fetch(`${replica(1).url}/v1/sessions/shared-session`);
    assert.equal(session.status, 200, await session.clone().text());
  });
});
