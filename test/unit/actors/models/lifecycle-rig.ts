// Model lifecycle rig: places (worker threads or processes) that start, fail and end when the test says so, and a record of
// each model's transitions and log lines.
import assert from "node:assert/strict";
import type { AdapterToLoad, ModelPlaceReady, ModelProtocol } from "../../../../actors/messages.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import { ManagedModel, type ManagedModelOptions } from "../../../../actors/models/managed-model.ts";
import { ModelSlots } from "../../../../actors/models/model-slots.ts";
import { transitions } from "../../../../actors/models/transitions.ts";
import { builtInDefaults } from "../../../../engines/sampling-defaults.ts";
import type { RestartPolicy } from "../../../../runtime/actor/supervision.ts";
import { ActorSystem } from "../../../../runtime/actor/system.ts";
import type { PeerExit } from "../../../../runtime/endpoint/endpoint.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import type { Place } from "../../../../runtime/thread/place.ts";
import { portPair } from "../../../fixtures/actors/endpoint-pair.ts";
import { FakeClock, settled } from "../../../fixtures/fakes/fake-clock.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";

export const policy: RestartPolicy = {
  kind: "restart",
  minBackoffMs: 100,
  maxBackoffMs: 30_000,
  resetAfterMs: 10_000,
  maxRestarts: 2,
};

const ready = (): ModelPlaceReady => {
  const { card, capacity, capabilities } = createFakeEngine();
  return { card, capacity, capabilities, maxQueue: 8, probes: null };
};

/** Statistics of a place (worker thread or process) that has had no requests. */
const unused = new StepLoop(createFakeEngine(), { limits: generousLimits, frameIntervalMs: 0 }).snapshot();

/** Fake place (worker thread or process) of a model, controlled by the test. */
export interface FakePlace {
  up(): Promise<void>;
  fail(error?: ServerError): Promise<void>;
  crash(): Promise<void>;
  readonly adapters: AdapterToLoad[];
  readonly isGone: boolean;
}

export interface TestedModel {
  readonly managed: ManagedModel;
  readonly places: FakePlace[];
  /** Statuses in order, each with the reason for the transition. */
  readonly moves: string[];
  readonly logged: { readonly message: string; readonly fields: Record<string, unknown> }[];
  readonly attached: string[];
}

/** Sends a request. Its state is "in" (admitted), "waits", or the error code of its rejection. */
export function come({ managed }: TestedModel, signal: AbortSignal | null = null, client = "client") {
  const request = { state: "waits", error: null as ServerError | null, leave: () => managed.gate.leave() };
  managed.enter(signal, client).then(
    () => {
      request.state = "in";
    },
    (error: ServerError) => {
      request.state = error.code;
      request.error = error;
    },
  );
  return request;
}

/** Observes whether a promise has settled, and its value. */
export function watch<T>(promise: Promise<T>) {
  const watched = { isSettled: false, value: null as T | null };
  promise.then((value) => {
    watched.isSettled = true;
    watched.value = value;
  });
  return watched;
}

/** Runs the event loop until pending messages have been delivered and replied to. */
export async function turns(): Promise<void> {
  for (let i = 0; i < 12; i++) await settled();
}

export class ModelRig {
  readonly clock = new FakeClock();
  readonly slots: ModelSlots;
  readonly system = new ActorSystem("front");
  readonly all: TestedModel[] = [];
  readonly #ends: (() => void)[] = [];
  /** Number of places (worker threads or processes) that are starting or running. */
  alive = 0;
  mostAlive = 0;

  constructor(slots: number | null = null) {
    this.slots = new ModelSlots(slots);
  }

  create(id: string, changes: Partial<ManagedModelOptions> = {}): TestedModel {
    const places: FakePlace[] = [];
    const moves: string[] = [];
    const logged: TestedModel["logged"] = [];
    const attached: string[] = [];
    const note = (fields: Record<string, unknown>, message: string) => void logged.push({ message, fields });
    const debug = ({ from, to, reason }: Record<string, unknown>) => {
      const isKnown = transitions.some((row) => row[0] === from && row[1] === to && row[2] === reason);
      assert.ok(isKnown, `a model does not go from ${from} to ${to} by "${reason}"`);
      moves.push(`${to} (${reason})`);
    };
    const managed = new ManagedModel({
      served: {
        id,
        engine: "llama",
        spec: { abortFlag: new SharedArrayBuffer(8) } as never,
        chatTemplate: null,
        jinjaExplicit: null,
        kind: "thread",
        defaults: builtInDefaults,
        adapters: null,
        ownAdapter: null,
      },
      adapters: null,
      loadsAtStart: false,
      spawn: (_served, signal) => this.#spawn(places, signal),
      users: {
        attach: async (_served, place) => {
          attached.push(place.name);
          return null;
        },
        detach: () => {},
      },
      system: this.system,
      slots: this.slots,
      clock: this.clock,
      restart: policy,
      maxWaiting: 4,
      loadTimeoutMs: 60_000,
      idleUnloadMs: 0,
      log: { debug, info: note, warn: note, error: note } as never,
      ...changes,
    });
    const tested = { managed, places, moves, logged, attached };
    this.all.push(tested);
    return tested;
  }

  /** Creates a model and waits until it is loaded. */
  async loaded(id: string, changes: Partial<ManagedModelOptions> = {}): Promise<TestedModel> {
    const tested = this.create(id, changes);
    const done = tested.managed.reload();
    await turns();
    await tested.places[0]?.up();
    await done;
    return tested;
  }

  async close(): Promise<void> {
    await Promise.all(this.all.map(({ managed }) => managed.stop(1000)));
    for (const end of this.#ends) end();
  }

  #spawn(places: FakePlace[], signal: AbortSignal): Promise<Place<ModelPlaceReady>> {
    const { left, right } = portPair();
    const end = () => {
      left.close();
      right.close();
    };
    this.#ends.push(end);
    this.alive++;
    this.mostAlive = Math.max(this.mostAlive, this.alive);
    const adapters: AdapterToLoad[] = [];
    const inside = new ActorSystem("model");
    const answers = { statistics: () => unused, loadAdapter: (message: AdapterToLoad) => void adapters.push(message) };
    inside.spawn<ModelProtocol>("model", answers as never);
    inside.attach(right);
    let leave = (_exit: PeerExit): void => {};
    let isGone = false;
    const exit = new Promise<PeerExit>((resolve) => {
      leave = (how) => {
        if (isGone) return;
        isGone = true;
        this.alive--;
        end();
        resolve(how);
      };
    });
    const gone = (reason: string, orderly: boolean) => leave({ reason, code: null, signal: null, orderly });
    const place: Place<ModelPlaceReady> = {
      name: `place ${places.length}`,
      ready: ready(),
      endpoint: left,
      exit,
      pid: null,
      dial: () => Promise.reject(new Error("not dialled here")),
      stop: async () => {
        gone("stopped", true);
        return await exit;
      },
      kill: () => gone("killed by its spawner", false),
    };
    return new Promise((resolve, reject) => {
      const fail = (error: ServerError) => {
        gone(error.message, false);
        reject(error);
      };
      signal.addEventListener("abort", () => fail(new ServerError("cancelled", "the start was cancelled")));
      places.push({
        adapters,
        get isGone() {
          return isGone;
        },
        up: async () => {
          resolve(place);
          await turns();
        },
        fail: async (error = new ServerError("model_file_invalid", "the file is damaged")) => {
          fail(error);
          await turns();
        },
        crash: async () => {
          gone("killed by SIGKILL", false);
          await turns();
        },
      });
    });
  }
}
