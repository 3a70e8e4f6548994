// Random lifecycle events for three models that share two slots in memory. Every request and call must get a result, at most
// two models may be in memory, and every status change must be in the table of allowed transitions (the rig checks each one).
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { ServerError } from "../../../../runtime/errors.ts";
import { ModelRig, type TestedModel, turns } from "./lifecycle-rig.ts";

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
  readonly model: TestedModel;
  readonly abort: AbortController;
  state: "waits" | "in" | "over";
}

class World {
  readonly rig = new ModelRig(2);
  readonly models = ["a", "b", "c"].map((id) => this.rig.create(id, { idleUnloadMs: 5000 }));
  readonly requests: Request[] = [];
  unsettledCalls = 0;

  async happen(event: (typeof events)[number], at: number): Promise<void> {
    const model = this.models[at % this.models.length] as TestedModel;
    const place = model.places.at(-1);
    if (event === "come") this.#come(model);
    else if (event === "leave") this.#leave(this.requests.find(({ state }) => state === "in"));
    else if (event === "abort") this.requests.find(({ state }) => state === "waits")?.abort.abort();
    else if (event === "unload") this.#call(model.managed.unload());
    else if (event === "reload") this.#call(model.managed.reload());
    else if (event === "up") await place?.up();
    else if (event === "fail") await place?.fail();
    else if (event === "flake") await place?.fail(new ServerError("peer_gone", "it died while it started"));
    else if (event === "crash") await place?.crash();
    else await this.rig.clock.advance((at % 4) * 2000);
    if (at % 3 > 0) await turns();
  }

  /** Stops the server in its current state, then ends the admitted requests. */
  async stop(): Promise<void> {
    await this.rig.close();
    await turns();
    for (const request of this.requests) if (request.state === "in") this.#leave(request);
  }

  /** Ends every admitted request, and completes the start of every place (worker thread or process) that is starting. */
  async rest(): Promise<void> {
    for (let i = 0; i < 30; i++) {
      for (const request of this.requests) if (request.state === "in") this.#leave(request);
      for (const { places } of this.models) await places.at(-1)?.up();
      await turns();
      await this.rig.clock.advance(100);
    }
  }

  #come(model: TestedModel): void {
    const request: Request = { model, abort: new AbortController(), state: "waits" };
    this.requests.push(request);
    model.managed.enter(request.abort.signal, "client").then(
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
    request.model.managed.gate.leave();
  }

  #call(outcome: Promise<unknown>): void {
    this.unsettledCalls++;
    void outcome.then(() => this.unsettledCalls--);
  }
}

describe("three models with two slots", () => {
  it("keep their limits and answer all requests and calls, whatever happens", async () => {
    const story = fc.array(fc.tuple(fc.constantFrom(...events), fc.nat(11)), { maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(story, fc.boolean(), async (steps, rests) => {
        const world = new World();
        for (const [event, at] of steps) {
          await world.happen(event, at);
          assert.ok(world.rig.alive <= 2, `${world.rig.alive} models are in memory`);
        }
        if (rests) await world.rest();
        else await world.stop();
        assert.deepEqual(
          new Set(world.requests.map(({ state }) => state)),
          new Set(world.requests.length > 0 ? ["over"] : []),
        );
        assert.equal(world.unsettledCalls, 0);
        for (const { managed } of world.models) assert.equal(managed.gate.inFlight, 0);
        assert.equal(world.rig.mostAlive <= 2, true);
        await world.rig.close();
        assert.deepEqual([world.rig.alive, world.rig.clock.pendingCount], [0, 0]);
      }),
      { numRuns: 40 },
    );
  });
});
