// `bench lifecycle`: unloads, reloads and kills models under load, and measures the effect on their clients and on the other
// model.

import { setTimeout as sleep } from "node:timers/promises";
import arg from "arg";
import { smallestModel } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { atMost, exactly, findingsTable, told } from "../overload/finding.ts";
import { report } from "../results.ts";
import { type Ends, Rig, type RigOptions } from "./rig.ts";

interface Scenario {
  readonly name: string;
  readonly engine: RigOptions["engine"];
  readonly times: number;
  readonly isDeath: boolean;
  /** Performs the action on the first model. Resolves with the milliseconds until that model answers again. */
  readonly act: (rig: Rig, round: number) => Promise<number>;
}

/** Uptime after which a model counts as healthy. If a healthy model dies, it is restarted immediately. */
const healthyMs = 5000;
/** Maximum recovery time of a model that died, in addition to its load time. */
const allowedMs = 2000;
/** Waiting time after which streams and a forward pass are in progress. */
const settleMs = 300;
/**
 * Maximum memory growth in the second half of the rounds: this fraction of the memory after the first half, plus growthMiB. The
 * growth in the first half is not limited, because heaps grow until they fit the streams.
 */
const growthShare = 0.1;
const growthMiB = 16;

export const usage = `npm run bench -- lifecycle [FLAGS]: models unloaded, reloaded and killed under load

  --reloads 50 --deaths 20
  --streams 32          streaming clients on each model
  --only TEXT           only scenarios whose names contain TEXT
  --model ID --save
`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--model": String,
      "--reloads": Number,
      "--deaths": Number,
      "--streams": Number,
      "--only": String,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const { path: model } = await resolveModel(flags["--model"] ?? smallestModel);
  const streams = flags["--streams"] ?? 32;
  const rows: string[] = [];
  for (const scenario of scenarios(flags["--reloads"] ?? 50, flags["--deaths"] ?? 20)) {
    if (!scenario.name.includes(flags["--only"] ?? "")) continue;
    process.stderr.write(`${scenario.name}…\n`);
    rows.push(await measure(scenario, { model, engine: scenario.engine, streams }));
  }
  report(
    {
      name: "lifecycle",
      title: "Models that come, go and die under load",
      method:
        `One front, two copies of a model, ${streams} clients on each that stream answers of 16 tokens all the time. It ` +
        "happens to the first model. Streams: whole ones, and errors by code (a death ends those under way, and refuses " +
        "those that come before it is back). Recovery: from the act to the next whole answer, beside the time a load took. " +
        "Memory: all processes, before the first act, after half of them and after the last, while no stream is under way.",
      body: rows.join("\n\n"),
    },
    flags["--save"] ?? false,
  );
}

function scenarios(reloads: number, deaths: number): readonly Scenario[] {
  const change = async (rig: Rig, round: number): Promise<number> => {
    const start = performance.now();
    if (round % 2 === 0) await rig.front.unload(rig.first);
    else await rig.front.reload(rig.first);
    await rig.recoveryMs(rig.first);
    return performance.now() - start;
  };
  const death = (kill: (rig: Rig) => void) => async (rig: Rig) => {
    await sleep(healthyMs + settleMs);
    kill(rig);
    await untilGone(rig);
    return await rig.recoveryMs(rig.first);
  };
  const signalled = (signal: NodeJS.Signals) => death((rig) => rig.kill(rig.first, signal));
  return [
    { name: "unload and reload, wasm", engine: "wasm", times: reloads, isDeath: false, act: change },
    { name: "unload and reload, llama", engine: "llama", times: reloads, isDeath: false, act: change },
    {
      name: "a compute thread ends, wasm",
      engine: "wasm",
      times: deaths,
      isDeath: true,
      act: death((rig) => rig.endComputeThread(rig.first)),
    },
    { name: "SIGKILL, llama", engine: "llama", times: deaths, isDeath: true, act: signalled("SIGKILL") },
    { name: "SIGABRT, llama", engine: "llama", times: deaths, isDeath: true, act: signalled("SIGABRT") },
  ];
}

async function untilGone(rig: Rig): Promise<void> {
  while (rig.front.statusOf(rig.first).status === "loaded") await sleep(1);
}

async function measure({ name, times, isDeath, act }: Scenario, options: RigOptions): Promise<string> {
  const rig = await Rig.start(options);
  try {
    await sleep(settleMs);
    const before = await rig.atRest(() => rig.residentMiB());
    let atHalf = before;
    const recoveries: number[] = [];
    const overLoad: number[] = [];
    for (let round = 0; round < times; round++) {
      const ms = await act(rig, round);
      recoveries.push(ms);
      overLoad.push(ms - rig.loadMs(rig.first));
      if (round + 1 === times >> 1) atHalf = await rig.atRest(() => rig.residentMiB());
    }
    await sleep(settleMs);
    const after = await rig.atRest(() => rig.residentMiB());
    const [own, others] = [rig.takeEnds(rig.first), rig.takeEnds(rig.second)];
    return findingsTable(`${name}, ${times} times`, [
      isDeath ? told("its streams", shown(own)) : exactly(`its streams that failed, of ${own.whole}`, failures(own), 0),
      exactly(`the other model's that failed, of ${others.whole}`, failures(others), 0),
      told("recovery, median", `${Math.round(median(recoveries))} ms`),
      isDeath
        ? atMost("recovery less the load, at most", Math.max(...overLoad), allowedMs, " ms", 0)
        : told("recovery, at most", `${Math.round(Math.max(...recoveries))} ms`),
      told("memory before", `${Math.round(before)} MiB`),
      told("memory after half", `${Math.round(atHalf)} MiB`),
      atMost("memory after", after, atHalf * (1 + growthShare) + growthMiB, " MiB", 0),
    ]);
  } finally {
    await rig.stop();
  }
}

function failures({ errors }: Ends): number {
  return Object.values(errors).reduce((sum, count) => sum + count, 0);
}

function shown({ whole, errors }: Ends): string {
  return [`${whole} whole`, ...Object.entries(errors).map(([code, count]) => `${count} ${code}`)].join(", ");
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}
