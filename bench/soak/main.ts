// `bench soak`: runs a steady load of all features for minutes or hours. Fails if a server resource grows in the second half.
import { loadavg } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import arg from "arg";
import { table } from "../../cli/bench/report.ts";
import { ServerError } from "../../runtime/errors.ts";
import { Dice } from "../../test/fixtures/hostile/dice.ts";
import { Ledger } from "../chaos/ledger.ts";
import { ChaosRig } from "../chaos/rig/rig.ts";
import type { ChaosServer } from "../chaos/rig/server.ts";
import type { SharedWork } from "../chaos/work/operation.ts";
import { References } from "../chaos/work/texts.ts";
import { planWork, waiterFor } from "../chaos/work/work.ts";
import { report } from "../results.ts";
import { randomFrom } from "../serving/client/random.ts";
import { memoryByProcess, type Sample, type Trend, takeSample, trendsOf } from "./samples.ts";

export const usage = `npm run bench -- soak [FLAGS]: all features at a steady load, and whether the server's resources grow

  --minutes N       duration after the warm-up (20); from 90 minutes, the numbers of files in the temporary and state
                    folders are checked too
  --rig KIND        lmdb or redis (lmdb)
  --share X         load as a fraction of the maximum sustained rate (0.8)
  --snapshots DIR   folder for heap snapshots of the main thread: after the warm-up, and at the end
  --seed S --save
`;

/** Largest allowed growth of a resource over the second half, as a fraction. */
const mostGrowth = 0.03;
/** Growth below this number of units (MiB, handles, threads or entries) is ignored as noise. */
const noise = 4;
/**
 * Minimum duration of a run in which the numbers of folder entries are judged. Shorter runs only show them, because sessions and files
 * expire after 30 minutes.
 */
const judgedEntriesMinutes = 90;
const samplesInAll = 120;
const probeMs = 20_000;
const probeClients = [4, 8, 16, 32, 64] as const;
/** The maximum sustained rate has been found if twice the clients raise the rate by less than this factor. */
const leastGain = 1.1;
/** Maximum number of operations in progress. */
const mostRunning = 256;
/** Number of responses that the ledger keeps at least. */
const keptResponses = 1000;
const limitMs = 120_000;
/** Size of the state folder's file system. At 313 operations/s it held up to 21,000 entries. */
const diskMiB = 4096;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--minutes": Number,
      "--rig": String,
      "--share": Number,
      "--snapshots": String,
      "--seed": Number,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const kind = flags["--rig"] ?? "lmdb";
  if (kind !== "lmdb" && kind !== "redis")
    throw new ServerError("config_invalid", `--rig expects lmdb or redis; got "${kind}"`);
  const [minutes, share, seed] = [flags["--minutes"] ?? 20, flags["--share"] ?? 0.8, flags["--seed"] ?? 1];
  const rig = await ChaosRig.start(kind, { diskMiB });
  try {
    const soak = await Soak.prepare(rig, seed);
    const perSecond = share * (await soak.sustained());
    const snapshots = flags["--snapshots"];
    if (snapshots !== undefined) await soak.snapshot(`${snapshots}/before.heapsnapshot`);
    const samples = await soak.run(minutes * 60_000, perSecond);
    if (snapshots !== undefined) await soak.snapshot(`${snapshots}/after.heapsnapshot`);
    const { text, grown } = judged(samples, minutes);
    const broken = soak.ledger.violations;
    const counts = [...soak.ledger.outcomes].map(([name, count]) => `${count} x ${name}`).join(", ");
    const method = `${minutes} minutes, ${perSecond.toFixed(1)} operations/s (${share} of what was sustained), state in ${kind}, seed ${seed}, load average at the end ${loadavg()[0]?.toFixed(1)}. Operations: ${counts}. Broken promises: ${broken.length === 0 ? "none" : broken.slice(0, 10).join("; ")}. Fails above ${mostGrowth * 100} % growth of the second half's trend.`;
    report({ name: "soak", title: "Soak", method, body: text }, flags["--save"] ?? false);
    if (grown.length > 0 || broken.length > 0) {
      const advice =
        snapshots === undefined
          ? "run it with --snapshots DIR and compare the two heaps"
          : `compare ${snapshots}/before.heapsnapshot and after.heapsnapshot in the Memory tab of Chrome's developer tools`;
      process.stderr.write(`grown: ${grown.join(", ") || "nothing"}; ${advice}\n`);
      process.exitCode = 1;
    }
  } finally {
    await rig.stop();
  }
}

class Soak {
  readonly ledger = new Ledger();
  readonly #rig: ChaosRig;
  readonly #shared: SharedWork;
  readonly #seed: number;
  #number = 0;

  private constructor(rig: ChaosRig, shared: SharedWork, seed: number) {
    this.#rig = rig;
    this.#shared = shared;
    this.#seed = seed;
    // On a machine with other load, the server's time limits end some requests.
    this.ledger.expect({ codes: ["timeout"] });
  }

  static async prepare(rig: ChaosRig, seed: number): Promise<Soak> {
    const references = await References.of((rig.servers[0] as ChaosServer).url, ["tiny", "code"]);
    return new Soak(rig, { references, embeddings: new Map() }, seed);
  }

  /**
   * Measures the maximum sustained rate in operations per second: doubles the number of clients, which each send one operation after
   * another, until the rate hardly rises. This is also the warm-up.
   */
  async sustained(): Promise<number> {
    let best = 0;
    for (const clients of probeClients) {
      const rate = await this.#rateOf(clients);
      process.stderr.write(`${clients} clients: ${rate.toFixed(1)} operations/s\n`);
      const isMost = rate < leastGain * best;
      best = Math.max(best, rate);
      if (isMost) break;
    }
    return best;
  }

  async #rateOf(clients: number): Promise<number> {
    const end = performance.now() + probeMs;
    let count = 0;
    const client = async (): Promise<void> => {
      for (; performance.now() < end; count++) await this.#operation();
    };
    await Promise.all(Array.from({ length: clients }, client));
    return (count * 1000) / probeMs;
  }

  /** Starts `perSecond` operations per second for `ms` milliseconds, and returns samples of the server's resources. */
  async run(ms: number, perSecond: number): Promise<Sample[]> {
    const samples: Sample[] = [];
    const [began, running] = [performance.now(), new Set<Promise<void>>()];
    const random = randomFrom(this.#seed, 5);
    const every = ms / samplesInAll;
    let nextSample = began + every;
    while (performance.now() - began < ms) {
      await sleep((-Math.log(1 - random()) / perSecond) * 1000);
      const one = this.#operation().finally(() => running.delete(one));
      running.add(one);
      this.#forgetResponses();
      // If the server is slower than the load, the clients wait, so that requests do not pile up without limit.
      if (running.size > mostRunning) await Promise.race(running);
      if (performance.now() < nextSample) continue;
      nextSample += every;
      const sample = await this.#sample();
      samples.push(sample);
      process.stderr.write(
        `${((performance.now() - began) / 60_000).toFixed(1)} min: ${Object.entries(sample)
          .map(([name, value]) => `${name} ${value.toFixed(1)}`)
          .join(", ")}; MiB by process: ${memoryByProcess(this.#server)}\n`,
      );
    }
    await Promise.all(running);
    return samples;
  }

  async snapshot(path: string): Promise<void> {
    await this.#server.heapBytes(path);
  }

  get #server(): ChaosServer {
    return this.#rig.servers[0] as ChaosServer;
  }

  async #operation(): Promise<void> {
    const number = this.#number++;
    const dice = new Dice(randomFrom(this.#seed, 4, number));
    const [planned] = planWork(dice, this.#rig.servers.length, 0);
    if (planned === undefined) return;
    const { ledger } = this;
    const what = `${planned.name} ${number}`;
    const server = this.#rig.servers[planned.server] as ChaosServer;
    const others = () => dice.pick(this.#rig.servers);
    await planned.run({
      ...this.#shared,
      shared: this.#shared,
      what,
      server,
      dice,
      ledger,
      limitMs,
      others,
      ended: waiterFor(what, ledger, limitMs),
    });
  }

  async #sample(): Promise<Sample> {
    const server = this.#server;
    const { temporaryFolder, stateDir } = this.#rig;
    return takeSample({
      pid: server.pid,
      places: server.places,
      temporaryFolder,
      stateDir,
      heapBytes: () => server.heapBytes(),
    });
  }

  /** Removes all but the last responses from the ledger (the record of all responses), because a run lasts for hours. */
  #forgetResponses(): void {
    if (this.ledger.responses.size < 2 * keptResponses) return;
    for (const id of [...this.ledger.responses.keys()].slice(0, -keptResponses)) this.ledger.responses.delete(id);
  }
}

function judged(samples: readonly Sample[], minutes: number): { readonly text: string; readonly grown: string[] } {
  const trends = trendsOf(samples);
  const isJudged = ({ resource }: Trend): boolean => minutes >= judgedEntriesMinutes || !resource.endsWith("entries");
  const isGrown = (trend: Trend): boolean =>
    isJudged(trend) && trend.growth > mostGrowth && trend.to - trend.from > noise;
  const text = table(
    ["resource", "at half time", "at the end", "growth", "holds"],
    trends.map((trend) => [
      trend.resource,
      trend.from.toFixed(1),
      trend.to.toFixed(1),
      `${(100 * trend.growth).toFixed(1)} %`,
      isGrown(trend) ? "NO" : isJudged(trend) ? "yes" : "not judged",
    ]),
  );
  return { text, grown: trends.filter(isGrown).map(({ resource }) => resource) };
}
