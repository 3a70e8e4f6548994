// Three models, room for two, and whatever may happen to them in any order: nobody waits for ever, no more are in memory than
// may be, and every move is one of the table (the rig checks each).
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { ServerError } from "../../../../runtime/errors.ts";
import { Lives, type TestedLife, turns } from "./lifecycle-rig.ts";

const events = [
  "come",
  "come",
  "leave",
  "abort",
  "unload",
  "reload",
  "up",
  "up",
  "fail",
  "flake",
  "crash",
  "wait",
] as const;

interface Request {
  readonly model: TestedLife;
  readonly abort: AbortController;
  state: "waits" | "in" | "over";
}

class World {
  readonly lives = new Lives(2);
  readonly models = ["a", "b", "c"].map((id) => this.lives.create(id, { idleUnloadMs: 5000 }));
  readonly requests: Request[] = [];
  unsettledCalls = 0;

  async happen(event: (typeof events)[number], at: number): Promise<void> {
    const model = this.models[at % this.models.length] as TestedLife;
    const place = model.places.at(-1);
    if (event === "come") this.#come(model);
    else if (event === "leave") this.#leave(this.requests.find(({ state }) => state === "in"));
    else if (event === "abort") this.requests.find(({ state }) => state === "waits")?.abort.abort();
    else if (event === "unload") this.#call(model.life.unload());
    else if (event === "reload") this.#call(model.life.reload());
    else if (event === "up") await place?.up();
    else if (event === "fail") await place?.fail();
    else if (event === "flake") await place?.fail(new ServerError("peer_gone", "it died while it started"));
    else if (event === "crash") await place?.crash();
    else await this.lives.clock.advance((at % 4) * 2000);
    if (at % 3 > 0) await turns();
  }

  /** The server stops, wherever everything is. */
  async stop(): Promise<void> {
    await this.lives.close();
    await turns();
    for (const request of this.requests) if (request.state === "in") this.#leave(request);
  }

  /** All clients leave when they are answered, and every place that is started comes up. */
  async rest(): Promise<void> {
    for (let i = 0; i < 30; i++) {
      for (const request of this.requests) if (request.state === "in") this.#leave(request);
      for (const { places } of this.models) await places.at(-1)?.up();
      await turns();
      await this.lives.clock.advance(100);
    }
  }

  #come(model: TestedLife): void {
    const request: Request = { model, abort: new AbortController(), state: "waits" };
    this.requests.push(request);
    model.life.enter(request.abort.signal, "client").then(
      () => {
        request.state = "in";
      },
      () => {
        request.state = "over";
      },
    );
  }

  #leave(request: Request | undefined): void {
    if (request === undefined) return;
    request.state = "over";
    request.model.life.leave();
  }

  #call(outcome: Promise<unknown>): void {
    this.unsettledCalls++;
    void outcome.then(() => this.unsettledCalls--);
  }
}

describe("three models with room for two", () => {
  it("keep their bounds and leave nobody waiting, whatever happens", async () => {
    const story = fc.array(fc.tuple(fc.constantFrom(...events), fc.nat(11)), { maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(story, fc.boolean(), async (steps, rests) => {
        const world = new World();
        for (const [event, at] of steps) {
          await world.happen(event, at);
          assert.ok(world.lives.alive <= 2, `${world.lives.alive} models are in memory`);
        }
        if (rests) await world.rest();
        else await world.stop();
        assert.deepEqual(
          new Set(world.requests.map(({ state }) => state)),
          new Set(world.requests.length > 0 ? ["over"] : []),
        );
        assert.equal(world.unsettledCalls, 0);
        for (const { life } of world.models) assert.equal(life.inFlight, 0);
        assert.equal(world.lives.mostAlive <= 2, true);
        await world.lives.close();
        assert.deepEqual([world.lives.alive, world.lives.clock.pendingCount], [0, 0]);
      }),
      { numRuns: 40 },
    );
  });
});
