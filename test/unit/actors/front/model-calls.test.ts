// Model calls that return a stream of events of their own type (such as "line"). The model's place (worker thread or process) is a
// fake that the test controls, over a real connection.
import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { ModelCalls } from "../../../../actors/front/model-calls/model-calls.ts";
import type { ModelPlaceReady } from "../../../../actors/messages.ts";
import type { ManagedModelOptions } from "../../../../actors/models/managed-model.ts";
import { StreamHub } from "../../../../runtime/actor/stream.ts";
import type { StreamWriter } from "../../../../runtime/actor/stream-ends.ts";
import { ActorSystem } from "../../../../runtime/actor/system.ts";
import type { PeerExit } from "../../../../runtime/endpoint/endpoint.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import type { Place } from "../../../../runtime/thread/place.ts";
import { portPair } from "../../../fixtures/actors/endpoint-pair.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { ModelRig, type TestedModel, turns } from "../models/lifecycle-rig.ts";

const channel = "drawings";
const window = 4;

interface DrawProtocol {
  draw(message: { readonly stream: number; readonly what: string }): void;
}

type DrawEvent =
  | { readonly type: "line"; readonly number: number }
  | { readonly type: "error"; readonly error: object };

/** Call that the model's place has received, with the stream for its events. */
interface SeenCall {
  readonly what: string;
  readonly writer: StreamWriter<DrawEvent>;
  isCancelled: boolean;
  isDrained: boolean;
}

/** Fake place (worker thread or process) of a model. It records calls; the test writes the events (lines of a drawing) to them. */
class DrawingPlace {
  readonly calls: SeenCall[] = [];
  readonly place: Place<ModelPlaceReady>;
  readonly #left: { close(): void };
  readonly #right: { close(): void };
  #gone: (exit: PeerExit) => void = () => {};

  constructor() {
    const { left, right } = portPair();
    [this.#left, this.#right] = [left, right];
    const hub = new StreamHub(right, { channel, window });
    const inside = new ActorSystem("model");
    inside.spawn<DrawProtocol>("drawer", {
      draw: ({ stream, what }) => {
        const hooks = {
          onCancel: () => {
            call.isCancelled = true;
          },
          onDrain: () => {
            call.isDrained = true;
          },
        };
        const call = { what, writer: hub.writer<DrawEvent>(stream, hooks), isCancelled: false, isDrained: false };
        this.calls.push(call);
      },
    });
    inside.attach(right);
    const { card, capacity, capabilities } = createFakeEngine();
    this.place = {
      name: "drawing place",
      ready: { card, capacity, capabilities, maxQueue: 8, probes: null },
      endpoint: left,
      exit: new Promise((resolve) => {
        this.#gone = resolve;
      }),
      pid: null,
      dial: () => Promise.reject(new Error("not dialled here")),
      stop: async () => this.end(true),
      kill: () => void this.end(false),
    };
  }

  end(orderly: boolean): PeerExit {
    const exit = { reason: orderly ? "stopped" : "killed", code: null, signal: null, orderly };
    this.#left.close();
    this.#right.close();
    this.#gone(exit);
    return exit;
  }
}

function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(new ServerError("cancelled", "the start was cancelled")));
  });
}

describe("calls of models with streams of their own", () => {
  let rig: ModelRig;
  let place: DrawingPlace;
  afterEach(async () => {
    await rig.close();
    place.end(true);
  });

  /** Creates the model that is called. `isUp`: whether it gets loaded; otherwise its start never completes. */
  async function started(isUp = true) {
    rig = new ModelRig();
    place = new DrawingPlace();
    const changes: Partial<ManagedModelOptions> = {
      spawn: (_, signal) => (isUp ? Promise.resolve(place.place) : untilAborted(signal)),
    };
    const model: TestedModel = isUp ? await rig.loaded("artist", changes) : rig.create("artist", changes);
    const models = {
      get(id: string) {
        if (id !== "artist") throw new ServerError("model_not_found", `no model "${id}"`);
        return model.managed;
      },
    };
    const calls = new ModelCalls<DrawProtocol>({ models, system: rig.system, actor: "drawer", channel, window });
    const stop = new AbortController();
    const call = (what: string, id = "artist") =>
      calls.events<DrawEvent>({ model: id, client: "c" }, stop.signal, (actor, stream) =>
        actor.tell("draw", { stream, what }),
      );
    return { model: model.managed, call, stop };
  }

  it("send each call, pass its events back, and keep the model loaded meanwhile", async () => {
    const { model, call } = await started();
    const [first, second] = [call("cat"), call("dog")];
    const [cat, dog] = [first.next(), second.next()];
    await turns();
    assert.deepEqual(
      place.calls.map(({ what }) => what),
      ["cat", "dog"],
    );
    assert.equal(model.gate.inFlight, 2);
    place.calls[1]?.writer.write({ type: "line", number: 2 });
    place.calls[0]?.writer.write({ type: "line", number: 1 });
    assert.deepEqual((await cat).value, [{ type: "line", number: 1 }]);
    assert.deepEqual((await dog).value, [{ type: "line", number: 2 }]);
    for (const { writer } of place.calls) writer.end();
    assert.deepEqual([(await first.next()).done, (await second.next()).done], [true, true]);
    assert.equal(model.gate.inFlight, 0);
  });

  it("pause the place until the events are read", async () => {
    const { call } = await started();
    const events = call("cat");
    const first = events.next();
    await turns();
    const [{ writer }] = place.calls as [SeenCall];
    const room = [1, 2, 3, 4].map((number) => writer.write({ type: "line", number }));
    assert.deepEqual(room, [true, true, true, false]);
    await first;
    await turns();
    assert.equal(place.calls[0]?.isDrained, false, "the first events are not processed yet");
    const next = events.next();
    await turns();
    assert.equal(place.calls[0]?.isDrained, true);
    writer.end();
    assert.equal((await next).done, true);
  });

  it("end without a further event when they are aborted, or left", async () => {
    const { model, call, stop } = await started();
    const left = call("cat");
    const begun = left.next();
    await turns();
    place.calls[0]?.writer.write({ type: "line", number: 1 });
    await begun;
    await left.return(undefined);
    await turns();
    assert.deepEqual([place.calls[0]?.isCancelled, model.gate.inFlight], [true, 0]);

    const aborted = call("dog").next();
    await turns();
    stop.abort();
    assert.equal((await aborted).done, true);
    await turns();
    assert.deepEqual([place.calls[1]?.isCancelled, model.gate.inFlight], [true, 0]);
    assert.equal((await call("bird").next()).done, true, "aborted before it began");
    assert.equal(model.gate.inFlight, 0);
  });

  it("end without an event when they are aborted while the model is loaded", async () => {
    const { model, call, stop } = await started(false);
    const waiting = call("cat").next();
    await turns();
    stop.abort();
    assert.equal((await waiting).done, true);
    assert.deepEqual([place.calls.length, model.gate.inFlight], [0, 0]);
  });

  it("fail with one last event when the place ends, and throw for an unknown model", async () => {
    const { model, call } = await started();
    const events = call("cat");
    const first = events.next();
    await turns();
    place.calls[0]?.writer.write({ type: "line", number: 1 });
    await first;
    place.end(false);
    const last = (await events.next()).value as readonly { readonly type: string; readonly error: { code: string } }[];
    assert.deepEqual(
      last.map(({ type, error }) => [type, error.code]),
      [["error", "peer_gone"]],
    );
    assert.equal((await events.next()).done, true);
    assert.equal(model.gate.inFlight, 0);
    await assert.rejects(call("cat", "nobody").next(), { code: "model_not_found" });
  });
});
