// Discrete event simulation of a fleet. The events are arrivals of requests and ends of steps. Time advances from event to event.
import { createRequire } from "node:module";
import type heap from "mnemonist/heap";
import type { Ask, Done, ReplicaSettings } from "./replica.ts";
import { Replica } from "./replica.ts";
import type { Router } from "./routing.ts";

// Loaded in the same way as the classes in runtime/collections.ts, which exports only the classes that the server uses.
const Heap: typeof heap.default = createRequire(import.meta.url)("mnemonist/heap");

export interface FleetSettings extends ReplicaSettings {
  readonly replicas: number;
  readonly router: Router;
  /**
   * `replicas`: number of replicas that share the cores of one machine; `steps`: number of steps that these cores can run at once at
   * full speed. null = each replica has a separate machine.
   */
  readonly sharing: { readonly replicas: number; readonly steps: number } | null;
}

export interface FleetResult {
  readonly done: readonly Done[];
  readonly refused: number;
  /** Share of the time in which the replicas computed, from 0 to 1. */
  readonly utilization: number;
  readonly endMs: number;
  /** Number of simulated events: arrivals and ends of steps. */
  readonly events: number;
}

interface Step {
  readonly replica: Replica;
  readonly startMs: number;
  /** Remaining duration of the step in ms, on cores that no other replica uses. */
  leftMs: number;
}

/** Machine whose cores are shared by the running steps of its replicas. */
class Machine {
  readonly steps = new Map<Replica, Step>();
  readonly #atOnce: number;
  #atMs = 0;
  /** Incremented when the set of running steps changes. Events with an older version are ignored, because their time is wrong. */
  version = 0;

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  get #rate(): number {
    return Math.min(1, this.#atOnce / this.steps.size);
  }

  /** Advances the running steps to `nowMs`. */
  advance(nowMs: number): void {
    for (const step of this.steps.values()) step.leftMs -= (nowMs - this.#atMs) * this.#rate;
    this.#atMs = nowMs;
  }

  /** Time at which the next running step ends, in ms; Infinity if none runs. */
  get nextEndMs(): number {
    let least = Infinity;
    for (const { leftMs } of this.steps.values()) least = Math.min(least, leftMs);
    return least === Infinity ? least : this.#atMs + Math.max(least, 0) / this.#rate;
  }
}

type Event =
  | { readonly atMs: number; readonly ask: Ask }
  | { readonly atMs: number; readonly machine: Machine; readonly version: number };

const rounding = 1e-9;

/**
 * Simulates a fleet until all requests are complete. `first`: first requests of all conversations, in order of time. `next`: returns
 * the next request of a conversation after a response; null if the conversation has ended.
 */
export function simulate(
  settings: FleetSettings,
  first: Iterable<Ask>,
  next: (done: Done) => Ask | null = () => null,
): FleetResult {
  const replicas = Array.from({ length: settings.replicas }, () => new Replica(settings));
  const machines = replicas.map(() => new Machine(1));
  if (settings.sharing !== null) {
    const { replicas: count, steps } = settings.sharing;
    for (const i of machines.keys()) machines[i] = i % count === 0 ? new Machine(steps) : (machines[i - 1] as Machine);
  }
  const events = new Heap<Event>((a, b) => a.atMs - b.atMs);
  const arrivals = first[Symbol.iterator]();
  const { requestMs } = settings.times;
  const push = (ask: Ask | null | undefined) => ask && events.push({ atMs: ask.sentMs + requestMs, ask });
  push(arrivals.next().value as Ask | undefined);
  const done: Done[] = [];
  let [refused, count] = [0, 0];
  let nowMs = 0;
  const begin = (index: number) => {
    const [replica, machine] = [replicas[index] as Replica, machines[index] as Machine];
    if (machine.steps.has(replica)) return;
    const leftMs = replica.begin(nowMs);
    if (leftMs === null) return;
    machine.advance(nowMs);
    machine.steps.set(replica, { replica, startMs: nowMs, leftMs });
    waitFor(machine);
  };
  const waitFor = (machine: Machine) => {
    events.push({ atMs: machine.nextEndMs, machine, version: ++machine.version });
  };
  const places = new Map(replicas.map((replica, i) => [replica, i]));
  for (let event = events.pop(); event !== undefined; event = events.pop()) {
    nowMs = event.atMs;
    if ("ask" in event) {
      count++;
      const { ask } = event;
      if (ask.turn === 0) push(arrivals.next().value as Ask | undefined);
      const index = settings.router(ask, replicas);
      if (replicas[index]?.take(nowMs, ask)) begin(index);
      else refused++;
      continue;
    }
    const { machine } = event;
    if (event.version !== machine.version) continue;
    count++;
    machine.advance(nowMs);
    for (const { replica, startMs, leftMs } of [...machine.steps.values()]) {
      if (leftMs > rounding) continue;
      machine.steps.delete(replica);
      for (const one of replica.end(nowMs, nowMs - startMs)) {
        done.push(one);
        push(next(one));
      }
      begin(places.get(replica) as number);
    }
    if (machine.steps.size > 0) waitFor(machine);
  }
  const busyMs = replicas.reduce((sum, one) => sum + one.busyMs, 0);
  return { done, refused, utilization: busyMs / (nowMs * replicas.length), endMs: nowMs, events: count };
}
