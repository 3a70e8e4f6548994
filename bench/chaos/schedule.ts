// Schedule: random client operations and random faults on a rig (the servers under test), all drawn from one seed, followed by
// a check of the final state.
import { availableParallelism, loadavg } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { Dice } from "../../test/fixtures/hostile/dice.ts";
import { randomFrom } from "../serving/client/random.ts";
import { clientFaults } from "./faults/clients.ts";
import type { Fault } from "./faults/fault.ts";
import { machineFaults } from "./faults/machine.ts";
import { processFaults } from "./faults/processes.ts";
import { redisFaults } from "./faults/redis.ts";
import { Ledger } from "./ledger.ts";
import type { ChaosRig } from "./rig/rig.ts";
import type { ChaosServer } from "./rig/server.ts";
import { type Baseline, baselineOf, settle } from "./settle.ts";
import type { SharedWork, Work } from "./work/operation.ts";
import { References } from "./work/texts.ts";
import { planWork, waiterFor } from "./work/work.ts";

const spanMs = 1500;
const usualLimitMs = 30_000;
const faults: readonly Fault[] = [...processFaults, ...machineFaults, ...clientFaults, ...redisFaults];

export interface Outcome {
  readonly seed: number;
  readonly faults: readonly string[];
  readonly violations: readonly string[];
  readonly outcomes: ReadonlyMap<string, number>;
  readonly ms: number;
}

/** Runner of schedules: has a rig (the servers under test) that has warmed up, and runs schedules on it one after another. */
export class Stage {
  readonly rig: ChaosRig;
  readonly #shared: SharedWork;
  readonly #baselines = new Map<ChaosServer, Baseline>();

  private constructor(rig: ChaosRig, shared: SharedWork) {
    this.rig = rig;
    this.#shared = shared;
  }

  static async prepare(rig: ChaosRig): Promise<Stage> {
    const first = rig.servers[0] as ChaosServer;
    const references = await References.of(first.url, ["tiny", "code"]);
    const stage = new Stage(rig, { references, embeddings: new Map() });
    // The warm-up runs operations without faults. It loads all code and starts all threads, and every operation must succeed.
    const warmUp = await stage.run(0, { only: [] });
    if (warmUp.violations.length > 0) throw new Error(`without a fault:\n${warmUp.violations.join("\n")}`);
    for (const server of rig.servers) stage.#baselines.set(server, baselineOf(rig, server));
    return stage;
  }

  /** Runs the schedule of a seed. `only`: names of the faults that may be drawn; null = all. */
  async run(seed: number, { only = null as readonly string[] | null } = {}): Promise<Outcome> {
    const began = performance.now();
    const { rig } = this;
    const ledger = new Ledger();
    const dice = new Dice(randomFrom(seed, 1));
    const fitting = faults.filter((fault) => fault.fits(rig) && (only === null || only.includes(fault.name)));
    const bag = fitting.flatMap((fault) => Array.from({ length: fault.weight }, () => fault));
    const planned =
      bag.length === 0
        ? []
        : dice.times(dice.int(1, 4), () => ({
            fault: dice.pick(bag),
            atMs: dice.int(0, spanMs),
            server: dice.int(0, rig.servers.length - 1),
          }));
    const work = planWork(dice, rig.servers.length, spanMs);
    const limitMs = limit();
    for (const { fault } of planned) ledger.expect(fault.effects);
    // On a machine without free cores, the server's time limits end some requests.
    if (load() > 1) ledger.expect({ codes: ["timeout"] });
    // Under this load, Redis may not reply within its limit of 3 s.
    if (load() > 4 && rig.kind === "redis") ledger.expect({ codes: ["storage_unavailable"] });
    const locks = new Map<object, Promise<void>>();
    const alone = (resource: object, action: () => Promise<void>): Promise<void> => {
      const done = (locks.get(resource) ?? Promise.resolve()).then(action);
      locks.set(
        resource,
        done.catch(() => {}),
      );
      return done;
    };
    const runs = work.map(async ({ name, run, atMs, server }, i) => {
      await sleep(atMs);
      const what = `${name} ${i} on ${server}`;
      const own = new Dice(randomFrom(seed, 2, i));
      const others = () => own.pick(rig.servers);
      const parts: Work = {
        ...this.#shared,
        shared: this.#shared,
        what,
        server: rig.servers[server] as ChaosServer,
        dice: own,
        ledger,
        limitMs,
        others,
        ended: waiterFor(what, ledger, limitMs),
      };
      await run(parts).catch((error: Error) => ledger.broken(`${what}: ${error.stack}`));
    });
    const harms = planned.map(async ({ fault, atMs, server }, i) => {
      await sleep(atMs);
      const own = new Dice(randomFrom(seed, 3, i));
      await fault
        .run({ rig, server: rig.servers[server] as ChaosServer, dice: own, ledger, alone })
        .catch((error: Error) => ledger.broken(`the fault "${fault.name}" failed: ${error.stack}`));
    });
    await Promise.all([...runs, ...harms]);
    await this.#revive(ledger);
    await settle(rig, ledger, this.#baselines, limitMs / 2);
    const names = planned.map(({ fault, atMs, server }) => `${fault.name} (${server}, ${atMs} ms)`);
    return {
      seed,
      faults: names,
      violations: ledger.violations,
      outcomes: ledger.outcomes,
      ms: performance.now() - began,
    };
  }

  /** Reports and restarts servers that have exited without a fault. Every fault restarts the servers that it stops. */
  async #revive(ledger: Ledger): Promise<void> {
    for (const server of this.rig.servers) {
      if (server.isUp) continue;
      ledger.broken(`the server ${server.url} has ended by itself (${server.exit}):\n${server.log.slice(-2000)}`);
      await server.end();
      await server.start();
    }
  }
}

/** Returns the machine's load average of the last minute divided by its number of cores; includes other programs. */
function load(): number {
  return (loadavg()[0] ?? 0) / availableParallelism();
}

/** Returns the time limit of a response in ms. It grows with the load of the machine. */
function limit(): number {
  return usualLimitMs * Math.max(1, load() / 3);
}
