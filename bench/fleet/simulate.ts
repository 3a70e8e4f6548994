// Simulation of a fleet by discrete events: arrivals of requests, and ends of steps. Time passes only between events.
import { createRequire } from "node:module";
import type heap from "mnemonist/heap";
import type { Ask, Done, ReplicaSettings } from "./replica.ts";
import { Replica } from "./replica.ts";
import type { Router } from "./routing.ts";

// Loaded like the classes in runtime/collections.ts, which has only what the server needs.
const Heap: typeof heap.default = createRequire(import.meta.url)("mnemonist/heap");

export interface FleetSettings extends ReplicaSettings {
  readonly replicas: number;
  readonly router: Router;
  /**
   * Replicas that share the cores of one machine, and how many of their steps the cores can run at once at full speed; null: each
   * has a machine of its own.
   */
  readonly sharing: { readonly replicas: number; readonly steps: number } | null;
}

export interface FleetResult {
  readonly done: readonly Done[];
  readonly refused: number;
  /** Share of the time in which the replicas computed. */
  readonly utilization: number;
  readonly endMs: number;
  /** Number of simulated events: arrivals and ends of steps. */
  readonly events: number;
}

interface Step {
  readonly replica: Replica;
  readonly startMs: number;
  /** Milliseconds that it still takes with cores of its own. */
  leftMs: number;
}

/** Machine: the running steps of its replicas share its cores. */
class Machine {
  readonly steps = new Map<Replica, Step>();
  readonly #atOnce: number;
  #atMs = 0;
  /** Number of changes of its steps. An event of an earlier number is void. */
  version = 0;

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  get #rate(): number {
    return Math.min(1, this.#atOnce / this.steps.size);
  }

  /** Lets time pass. */
  advance(nowMs: number): void {
    for (const step of this.steps.values()) step.leftMs -= (nowMs - this.#atMs) * this.#rate;
    this.#atMs = nowMs;
  }

  /** Time at which the next step ends; Infinity if none runs. */
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
 * Runs a fleet until all requests are answered. `first` are the first requests of conversations by time; `next` returns the next
 * request of a conversation after an answer, null if it has ended.
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
