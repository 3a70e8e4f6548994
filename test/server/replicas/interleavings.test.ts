// Random interleavings: background responses that are created, followed, cancelled, approved, continued and deleted on different
// replicas. INTERLEAVINGS sets the number of responses, SEED the random choices.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { seeded } from "../../fixtures/schemas/random-text.ts";
import { lacksRedis } from "../../fixtures/store/redis-stores.ts";
import { Follower, isLast, jsonBody, post, type ReplicaRig, type StreamEvent, startReplicas } from "./rig.ts";

const count = Number(process.env.INTERLEAVINGS ?? 200);
const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
const AT_ONCE = 16;
const SCENE_MS = 20_000;

let rig: ReplicaRig;

describe("random interleavings on three replicas", { skip: lacksRedis }, () => {
  before(async () => {
    rig = await startReplicas(3, { leaseMs: 10_000 });
  });
  after(async () => {
    await rig.stop();
  });

  it(`have no wrong outcome in ${count} (seed ${seed})`, { timeout: 60_000 + count * 1000 }, async (t) => {
    const outcomes = new Map<string, number>();
    let next = 0;
    const lane = async (): Promise<void> => {
      for (let i = next++; i < count; i = next++) {
        const scene = new Scene(seeded(seed * 100_003 + i));
        try {
          const outcome = await within(SCENE_MS, scene.run());
          outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
        } catch (error) {
          const errors = rig.replicas.map((replica) => replica.errors()).join("\n");
          // Node's reporters do not print the cause of an error.
          throw new Error(`interleaving ${i} of seed ${seed}: ${error}\n${scene.history.join("\n")}\n${errors}`);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
    t.diagnostic(`seed ${seed}: ${[...outcomes].map(([name, times]) => `${name} ${times}`).join(", ")}`);
  });
});

class Scene {
  readonly history: string[] = [];
  readonly #random: () => number;

  constructor(random: () => number) {
    this.#random = random;
  }

  /** Creates one response and runs its random sequence of operations. Returns its final status. */
  async run(): Promise<string> {
    const needsApproval = this.#chance(0.3);
    const words = 1 + this.#below(20);
    const input = `${needsApproval ? "tool " : ""}words ${words} wait ${this.#below(6)}`;
    const tools = needsApproval
      ? { tools: [{ type: "mcp", server_label: "library", require_approval: "always" }] }
      : { tools: [] };
    const creator = this.#follow("/v1/responses", { input, background: true, stream: true, store: true, ...tools });
    const created = await creator.first(({ response }) => response !== undefined);
    assert.equal(await creator.status, 200);
    const id = created?.response?.id ?? "";
    // As soon as a client knows an id, all replicas must know it.
    assert.equal((await this.#get(`/v1/responses/${id}`)).status, 200, "known at once");
    const followers = Array.from({ length: this.#below(3) }, () => {
      const from = this.#chance(0.5) ? -1 : this.#below(6);
      const query = from < 0 ? "" : `&starting_after=${from}`;
      return { from, follower: this.#follow(`/v1/responses/${id}?stream=true${query}`) };
    });
    const isCreatorGone = this.#chance(0.2);
    if (isCreatorGone) void sleep(this.#below(20)).then(() => creator.leave());
    const fate = this.#random();
    const cancellation = fate < 0.3 ? this.#later(() => this.#cancel(id)) : null;
    // The promise is awaited at the end. If the run fails earlier, its error is reported instead.
    cancellation?.catch(() => {});
    const deletion = fate > 0.85 ? this.#later(() => this.#delete(id)) : null;
    deletion?.catch(() => {});
    if (needsApproval) await this.#approve(id, creator, isCreatorGone);
    if (deletion !== null) {
      await deletion;
      for (const { follower } of followers) follower.leave();
      creator.leave();
      return "deleted";
    }
    if (isCreatorGone) {
      const own = this.#follow(`/v1/responses/${id}?stream=true`);
      await this.#checkStream(id, own, -1);
    } else await this.#checkStream(id, creator, -1);
    for (const { follower, from } of followers) await this.#checkStream(id, follower, from);
    // Must complete before the run ends: a later request to replicas that have been stopped would fail and crash the test
    // process.
    await cancellation;
    const state = (await (await this.#get(`/v1/responses/${id}`)).json()) as { status: string };
    if (state.status === "completed") await this.#continue(id);
    return state.status;
  }

  /**
   * Asserts that a stream is complete: no event is lost or duplicated, it has one final event, and every replica then returns
   * the same final state.
   */
  async #checkStream(id: string, stream: Follower, after: number): Promise<void> {
    const last = await stream.first(isLast);
    // Once a client has the last event, every replica must return the final state.
    if (last !== undefined) {
      const { status } = (await (await this.#get(`/v1/responses/${id}`)).json()) as { status: string };
      assert.equal(status, statusOf(last), "final state");
    }
    assert.equal(await stream.status, 200);
    assert.equal(await stream.ended, true, `the stream has its end: ${JSON.stringify(stream.events.at(-1))}`);
    const numbers = stream.events.map(({ sequence_number }) => sequence_number);
    assert.deepEqual(
      numbers,
      numbers.map((_, i) => after + 1 + i),
      "numbers of the events",
    );
    const ends = stream.events.filter(isLast);
    // A reader that starts after the last event gets an empty stream.
    assert.ok(ends.length === 1 ? isLast(stream.events.at(-1) as StreamEvent) : stream.events.length === 0, "one end");
  }

  async #cancel(id: string): Promise<void> {
    const reply = await this.#post(`/v1/responses/${id}/cancel`);
    const body = (await reply.json()) as { status?: string };
    if (reply.status === 404) return;
    assert.deepEqual([reply.status, body.status], [200, "cancelled"]);
    const shown = (await (await this.#get(`/v1/responses/${id}`)).json()) as { status: string };
    assert.equal(shown.status, "cancelled", "cancelled everywhere");
  }

  async #delete(id: string): Promise<void> {
    const url = `${this.#replica()}/v1/responses/${id}`;
    this.history.push(`delete ${url}`);
    const replies = await Promise.all([
      fetch(url, { method: "DELETE" }),
      ...(this.#chance(0.3) ? [this.#delayed(url)] : []),
    ]);
    const statuses = replies.map(({ status }) => status);
    assert.ok(statuses.includes(200) && statuses.every((status) => status === 200 || status === 404), String(statuses));
    for (const { url: base } of rig.replicas) {
      assert.equal((await fetch(`${base}/v1/responses/${id}`)).status, 404, "deleted everywhere");
    }
  }

  async #delayed(url: string): Promise<Response> {
    await sleep(this.#below(5));
    return await fetch(url.replace(/^http:\/\/[^/]+/, this.#replica()), { method: "DELETE" });
  }

  /** Decides the same approval on two replicas at once. Asserts that at most one decision is accepted. */
  async #approve(id: string, creator: Follower, isCreatorGone: boolean): Promise<void> {
    const isElsewhere = isCreatorGone || this.#chance(0.5);
    const stream = isElsewhere ? this.#follow(`/v1/responses/${id}?stream=true`) : creator;
    const asks = ({ type, approval_id }: StreamEvent): boolean =>
      type.includes("approval") && approval_id !== undefined;
    const asked = await stream.first((event) => asks(event) || isLast(event));
    if (asked === undefined || !asks(asked)) return;
    const decision = this.#chance(0.7) ? "approve" : "deny";
    const replies = await Promise.all(
      [0, 1].map(() => this.#post(`/v1/agent/approvals/${asked.approval_id}`, { decision })),
    );
    const counted = replies.filter(({ status }) => status === 200).length;
    // The call may have been cancelled in the meantime.
    assert.ok(counted <= 1, `${counted} decisions counted`);
    if (counted === 0)
      assert.ok(
        this.history.some((line) => /cancel|delete/.test(line)),
        "a decision was lost",
      );
  }

  /** Continues the response on another replica. */
  async #continue(id: string): Promise<void> {
    const reply = await this.#post("/v1/responses", { input: "words 1 wait 0", previous_response_id: id, tools: [] });
    const body = (await reply.json()) as { status?: string; id?: string };
    assert.deepEqual([reply.status, body.status], [200, "completed"]);
    // A response that was not streamed is stored before its body is sent.
    assert.equal((await this.#get(`/v1/responses/${body.id}`)).status, 200, "stored before the answer");
  }

  async #later(action: () => Promise<void>): Promise<void> {
    await sleep(this.#below(60));
    await action();
  }

  #follow(path: string, body: object | null = null): Follower {
    const url = this.#replica() + path;
    this.history.push(`${body === null ? "follow" : "create"} ${url} ${body === null ? "" : JSON.stringify(body)}`);
    return new Follower(url, body === null ? {} : jsonBody(body));
  }

  #get(path: string): Promise<Response> {
    const url = this.#replica() + path;
    this.history.push(`get ${url}`);
    return fetch(url);
  }

  #post(path: string, body: object = {}): Promise<Response> {
    const url = this.#replica() + path;
    this.history.push(`post ${url} ${JSON.stringify(body)}`);
    return post(url, body);
  }

  #replica(): string {
    return rig.replicas[this.#below(rig.replicas.length)]?.url ?? "";
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  #chance(probability: number): boolean {
    return this.#random() < probability;
  }
}

async function within<T>(limitMs: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${limitMs} ms`)), limitMs);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

function statusOf({ type, response }: StreamEvent): string {
  return response?.status ?? type;
}
