// Restarted background responses (restart_background): if a server dies before a response has output, another replica or the
// next start generates it. Never do two servers generate it at once.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { lacksRedis } from "../../fixtures/store/redis-stores.ts";
import { Follower, jsonBody, post, type Replica, type ReplicaRig, startReplica, startReplicas } from "./rig.ts";

const LEASE_MS = 1000;
const MOST_MS = 20_000;

interface Shown {
  readonly status: string;
  readonly created_at: number;
  readonly output: readonly { readonly content: readonly { readonly text: string }[] }[];
}

const textOf = ({ output }: Shown): string => output.map(({ content }) => content.map(({ text }) => text)).join("");

async function created(url: string, input: string, more: object = {}): Promise<string> {
  const reply = await post(`${url}/v1/responses`, { input, background: true, tools: [], ...more });
  const body = (await reply.json()) as { id: string };
  assert.equal(reply.status, 200, JSON.stringify(body));
  return body.id;
}

async function shown(url: string, id: string): Promise<Shown> {
  return (await (await fetch(`${url}/v1/responses/${id}`)).json()) as Shown;
}

/** Polls a response until it has ended. Returns it, and all states that were seen. */
async function ended(url: string, id: string): Promise<Shown & { readonly seen: readonly string[] }> {
  const seen = new Set<string>();
  for (const until = performance.now() + MOST_MS; performance.now() < until; await sleep(20)) {
    const response = await shown(url, id);
    seen.add(response.status);
    if (!["queued", "in_progress"].includes(response.status)) return { ...response, seen: [...seen] };
  }
  assert.fail(`the response ${id} did not end: ${[...seen]}`);
}

function assertWhole(stream: Follower): void {
  const numbers = stream.events.map(({ sequence_number }) => sequence_number);
  assert.deepEqual(
    numbers,
    numbers.map((_, i) => i),
  );
}

describe("background responses of a replica that ends before their first output", { skip: lacksRedis }, () => {
  let rig: ReplicaRig;
  const replica = (index: number): Replica => rig.replicas[index] as Replica;
  before(async () => {
    rig = await startReplicas(3, { leaseMs: LEASE_MS, restarts: true });
  });
  after(async () => {
    await rig.stop();
  });

  it("are generated once by another replica after a crash, and queued until then", { timeout: 60_000 }, async () => {
    const [own, other] = [replica(0).url, replica(1).url];
    const dead = String(replica(0).process.pid);
    const input = "who words 5 wait 5 start 1500";
    // A text worker reads bodies above 64 KiB.
    const long = [
      { role: "user", content: "x".repeat(100_000) },
      { role: "user", content: input },
    ];
    const ids = await Promise.all([1, 2, 3, 4].map(() => created(own, input)));
    ids.push(await created(own, long as never));
    const streamed = new Follower(
      `${own}/v1/responses`,
      jsonBody({ input, background: true, stream: true, tools: [] }),
    );
    const first = await streamed.first(({ response }) => response !== undefined);
    const id = first?.response?.id ?? "";
    const follower = new Follower(`${other}/v1/responses/${id}?stream=true`);
    const begun = await created(own, "who words 400 wait 10");
    const beforeKill = await shown(other, id);
    await sleep(300);
    await rig.kill(0);
    const results = await Promise.all([...ids, id].map((each) => ended(other, each)));
    for (const result of results) {
      assert.equal(result.status, "completed");
      assert.ok(!result.seen.includes("incomplete"));
      const words = textOf(result).trim().split(" ");
      assert.equal(words.length, 5);
      assert.equal(new Set(words).size, 1, "the output of one server");
      assert.notEqual(words[0], dead);
    }
    assert.equal(results.at(-1)?.created_at, beforeKill.created_at);
    assert.equal(await follower.ended, true);
    assertWhole(follower);
    assert.equal(follower.events.at(-1)?.type, "response.completed");
    const replay = new Follower(`${replica(2).url}/v1/responses/${id}?stream=true`);
    await replay.ended;
    assert.deepEqual(replay.events, follower.events);
    // A response that already has output is not generated again.
    assert.equal((await ended(other, begun)).status, "incomplete");
    await rig.replace(0);
  });

  it("have the output of only one replica, if the first replica was only paused", async () => {
    const paused = replica(0).process;
    const creators = [1, 2, 3].map(() => {
      const body = { input: "who words 20 wait 20 start 700", background: true, stream: true, tools: [] };
      return new Follower(`${replica(0).url}/v1/responses`, jsonBody(body));
    });
    const firsts = await Promise.all(creators.map((each) => each.first(({ response }) => response !== undefined)));
    const ids = firsts.map((event) => event?.response?.id ?? "");
    const followers = ids.map((id) => new Follower(`${replica(2).url}/v1/responses/${id}?stream=true`));
    paused.kill("SIGSTOP");
    await sleep(LEASE_MS + 2800);
    paused.kill("SIGCONT");
    const results = await Promise.all(ids.map((id) => ended(replica(1).url, id)));
    for (const [i, result] of results.entries()) {
      assert.equal(result.status, "completed");
      const words = textOf(result).trim().split(" ");
      assert.deepEqual([words.length, new Set(words).size], [20, 1]);
      assert.notEqual(words[0], String(paused.pid));
      const follower = followers[i] as Follower;
      assert.equal(await follower.ended, true);
      assertWhole(follower);
      assert.equal(follower.events.map(({ delta = "" }) => delta).join(""), textOf(result));
      const creator = creators[i] as Follower;
      assert.equal(await creator.ended, true);
      assert.deepEqual([creator.events.at(-1)?.type, creator.events.at(-1)?.code], ["error", "peer_gone"]);
      assert.ok(creator.events.every(({ delta }) => delta === undefined));
      // The replica that was paused returns the final state like any other.
      assert.equal((await shown(replica(0).url, (ids[i] ?? "") as string)).status, "completed");
    }
  });

  it("are left to another replica by one that stops, unless they are deleted", async () => {
    const url = replica(1).url;
    const ids = await Promise.all([1, 2, 3].map(() => created(replica(0).url, "who words 3 wait 1 start 1000")));
    const deleted = ids.pop() as string;
    const child = replica(0).process;
    child.kill("SIGTERM");
    await once(child, "exit");
    assert.equal((await fetch(`${url}/v1/responses/${deleted}`, { method: "DELETE" })).status, 200);
    for (const result of await Promise.all(ids.map((id) => ended(url, id)))) {
      assert.deepEqual([result.status, result.seen.includes("incomplete")], ["completed", false]);
    }
    assert.equal((await fetch(`${url}/v1/responses/${deleted}`)).status, 404);
    await rig.replace(0);
  });
});

describe("background responses of a single server that is killed", () => {
  it("are generated after the next start if they had no output", { timeout: 60_000 }, async () => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-restarts-"));
    const start = (): Promise<Replica> => startReplica("", LEASE_MS, folder, true);
    let server = await start();
    try {
      const waiting = await created(server.url, "who words 3 wait 1 start 500");
      const begun = await created(server.url, "who words 300 wait 10");
      await sleep(200);
      server.process.kill("SIGKILL");
      await once(server.process, "exit");
      server = await start();
      const result = await ended(server.url, waiting);
      assert.deepEqual([result.status, result.seen.includes("incomplete")], ["completed", false]);
      assert.equal(textOf(result).trim().split(" ")[0], String(server.process.pid));
      assert.equal((await shown(server.url, begun)).status, "incomplete");
    } finally {
      server.process.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
