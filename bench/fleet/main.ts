// `bench fleet`: estimates how many machines a load needs. It simulates the fleet with the real scheduler and measured step times.
// With --check, it compares the simulation with three real replicas.
import arg from "arg";
import { table } from "../../cli/bench/report.ts";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { ServerError } from "../../runtime/errors.ts";
import { report } from "../results.ts";
import { randomFrom } from "../serving/client/random.ts";
import { percentiles } from "../serving/client/statistics.ts";
import { words } from "../serving/options.ts";
import { checkTable } from "./check.ts";
import type { Ask, Done } from "./replica.ts";
import { routers } from "./routing.ts";
import { type FleetResult, simulate } from "./simulate.ts";
import { measureStepTimes, parseStepTimes, type StepTimes } from "./step-times.ts";

export const usage = `npm run bench -- fleet [FLAGS]: how many machines a load needs

The load
  --users 1000000 --every 600       number of users, and mean seconds between two conversations of a user
  --turns 3 --think 20              turns of a conversation, and seconds between an answer and the next question
  --prompt-tokens 200 --answer-tokens 200   mean lengths of a question and an answer, which vary by half
The fleet
  --ttft-p99 1000                   target: 99 % of the first tokens within this many milliseconds, no request rejected
  --router ${Object.keys(routers).join("|")}    algorithm of the load balancer; default: all, one after another
  --slots 32 --max-queue 512
  --seconds 300                     simulated time
The step times, measured on this machine or given
  --model ID --threads 2 --troupe-flags="..."
  --step-times 1:6,8:14,32:40/0.9/5 milliseconds: of a decode step for 1, 8 and 32 sequences / per prompt token / per request
The comparison with three real replicas on this machine
  --check [--rates 1,2,3]           rates in requests per second; default: 50, 70 and 90 % of the estimated maximum
The result
  --seed 1 --save
`;

const warmupShare = 0.2;
const leastUtilization = 0.1;
/** Conversations per second of the reduced load with which the search for the number of machines begins. */
const searchedPerSecond = 30;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...{ "--users": Number, "--every": Number, "--turns": Number, "--think": Number, "--seconds": Number },
      ...{ "--prompt-tokens": Number, "--answer-tokens": Number, "--ttft-p99": Number, "--router": String },
      ...{ "--slots": Number, "--max-queue": Number, "--model": String, "--threads": Number, "--troupe-flags": String },
      ...{ "--step-times": String, "--check": Boolean, "--rates": String, "--seed": Number, "--save": Boolean },
    },
    { argv: [...argv] },
  );
  const { path: model } = await resolveModel(flags["--model"] ?? defaultPackage);
  const threads = flags["--threads"] ?? 2;
  const troupeFlags = words(flags["--troupe-flags"]);
  const seed = flags["--seed"] ?? 1;
  const save = flags["--save"] ?? false;
  if (flags["--check"]) {
    const rates = flags["--rates"]?.split(",").map(Number) ?? null;
    const body = await checkTable({ model, flags: troupeFlags, rates, seed });
    report(
      {
        name: "fleet-check",
        title: "The simulated fleet over three real replicas",
        method:
          "`npm run bench -- fleet --check`: three servers with one thread each on the cores of this machine, requests at random times " +
          "(Poisson), every third to the same server. The simulation gets the same times and lengths, step times measured alone, and the number of " +
          "steps that the machine can run at once: the speed of the three servers at once, all slots busy, divided by that of one.",
        body,
      },
      save,
    );
    return;
  }
  const given = flags["--step-times"];
  const times = given === undefined ? await measureStepTimes(model, threads, troupeFlags) : parseStepTimes(given);
  const load: FleetLoad = {
    perSecond: (flags["--users"] ?? 1_000_000) / (flags["--every"] ?? 600),
    turns: flags["--turns"] ?? 3,
    thinkMs: (flags["--think"] ?? 20) * 1000,
    promptTokens: flags["--prompt-tokens"] ?? 200,
    answerTokens: flags["--answer-tokens"] ?? 200,
    ms: (flags["--seconds"] ?? 300) * 1000,
    seed,
  };
  const fleet = { slots: flags["--slots"] ?? 32, maxQueue: flags["--max-queue"] ?? 512, times };
  const wantedMs = flags["--ttft-p99"] ?? 1000;
  const names = flags["--router"] === undefined ? Object.keys(routers) : [flags["--router"]];
  const rows = names.map((name) => smallestFleet(name, fleet, load, wantedMs));
  const { decode, promptTokenMs } = times;
  report(
    {
      name: "fleet",
      title: "How many machines a load needs",
      method:
        `${Math.round(load.perSecond)} conversations a second of ${load.turns} turns, ${load.thinkMs / 1000} s apart; questions of ` +
        `${load.promptTokens} and answers of ${load.answerTokens} tokens, within half of that. Wanted: the first token within ${wantedMs} ms ` +
        `for 99 %, none refused. Simulated time: ${load.ms / 1000} s, the first ${warmupShare * 100} % not counted. Step times: ` +
        `${decode.map(([n, ms]) => `${ms.toFixed(1)} ms for ${n}`).join(", ")}, ${promptTokenMs.toFixed(2)} ms for a prompt token.`,
      body: table(
        [
          "load balancer",
          "machines",
          "wanted",
          "first token p50",
          "p99",
          "ms a token p50",
          "p99",
          "cached",
          "tokens/s",
          "busy",
          "refused",
        ],
        rows,
      ),
    },
    save,
  );
}

interface FleetLoad {
  /** New conversations per second. */
  readonly perSecond: number;
  readonly turns: number;
  readonly thinkMs: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  readonly ms: number;
  readonly seed: number;
}

type Fleet = { readonly slots: number; readonly maxQueue: number; readonly times: StepTimes };

/**
 * Searches for the smallest fleet that meets the target. It first searches with a part of the load, to within 1 %, because a tenth
 * of the load needs about a tenth of the machines. Then it scales the result up and checks it with the whole load.
 */
function smallestFleet(name: string, fleet: Fleet, load: FleetLoad, wantedMs: number): string[] {
  const router = routers[name];
  if (router === undefined) {
    throw new ServerError("config_invalid", `--router expects ${Object.keys(routers).join(", ")}; got "${name}"`);
  }
  const run = (replicas: number, part: FleetLoad) => {
    const startMs = performance.now();
    const result = runLoad({ ...fleet, replicas, router: router(), sharing: null }, part);
    const { p99 } = firstTokenOf(result, part);
    const share = `${((part.perSecond / load.perSecond) * 100).toFixed(0)} % of the load`;
    const seconds = (performance.now() - startMs) / 1000;
    const pace = `${(result.events / 1e6).toFixed(1)} M events in ${seconds.toFixed(0)} s`;
    process.stderr.write(
      `${name}: ${share}, ${replicas} machines, first token p99 ${p99.toFixed(0)} ms, ${result.refused} refused; ${pace}\n`,
    );
    return { replicas, result, holds: result.refused === 0 && p99 <= wantedMs };
  };
  const part = { ...load, perSecond: Math.min(load.perSecond, searchedPerSecond) };
  const scale = load.perSecond / part.perSecond;
  // A smaller fleet is too slow to decode all responses.
  const [most, mostMs] = fleet.times.decode.at(-1) ?? [1, 1];
  let low = Math.max(1, Math.floor((part.perSecond * load.turns * load.answerTokens * mostMs) / most / 1000));
  let found = run(low, part);
  while (!found.holds) {
    // This fleet is mostly idle and still misses the target, so a larger fleet would miss it too.
    if (found.result.utilization < leastUtilization) return row(name, found.replicas, found.result, part, wantedMs);
    low = found.replicas;
    found = run(Math.ceil(low * 1.5), part);
  }
  while (found.replicas - low > Math.max(1, found.replicas * 0.01)) {
    const middle = run((found.replicas + low) >> 1, part);
    if (middle.holds) found = middle;
    else low = middle.replicas;
  }
  if (scale > 1) {
    found = run(Math.ceil(found.replicas * scale), load);
    while (!found.holds) found = run(Math.ceil(found.replicas * 1.02), load);
  }
  return row(name, found.replicas, found.result, load, wantedMs);
}

function row(name: string, replicas: number, result: FleetResult, load: FleetLoad, wantedMs: number): string[] {
  const first = firstTokenOf(result, load);
  const counted = countedOf(result, load);
  const perToken = percentiles(
    counted
      .filter(({ ask }) => ask.newTokens > 1)
      .map((one) => (one.endMs - one.firstTokenMs) / (one.ask.newTokens - 1)),
  );
  const [prompt, cached, answered] = [
    counted.reduce((sum, { ask }) => sum + ask.promptTokens, 0),
    counted.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0),
    counted.reduce((sum, { ask }) => sum + ask.newTokens, 0),
  ];
  const seconds = (load.ms * (1 - warmupShare)) / 1000;
  return [
    name,
    String(replicas),
    first.p99 <= wantedMs && result.refused === 0 ? "yes" : "no",
    `${first.p50.toFixed(0)} ms`,
    `${first.p99.toFixed(0)} ms`,
    perToken.p50.toFixed(1),
    perToken.p99.toFixed(1),
    `${((cached / prompt) * 100).toFixed(0)} %`,
    (answered / seconds).toFixed(0),
    `${(result.utilization * 100).toFixed(0)} %`,
    String(result.refused),
  ];
}

/** Returns the requests that count: those sent after the warm-up and before the end of the load. */
function countedOf({ done }: FleetResult, { ms }: FleetLoad): Done[] {
  return done.filter(({ ask }) => ask.sentMs >= ms * warmupShare && ask.sentMs < ms);
}

function firstTokenOf(result: FleetResult, load: FleetLoad) {
  return percentiles(countedOf(result, load).map(({ ask, firstTokenMs }) => firstTokenMs - ask.sentMs));
}

function runLoad(fleet: Parameters<typeof simulate>[0], load: FleetLoad): FleetResult {
  const { perSecond, turns, thinkMs, promptTokens, answerTokens, ms, seed } = load;
  const random = randomFrom(seed);
  const near = (mean: number) => Math.max(1, Math.round(mean * (0.5 + random())));
  const exponential = (mean: number) => -Math.log(1 - random()) * mean;
  function* conversations(): Iterable<Ask> {
    let sentMs = 0;
    for (let conversation = 0; ; conversation++) {
      sentMs += exponential(1000 / perSecond);
      if (sentMs >= ms) return;
      const lengths = { promptTokens: near(promptTokens), newTokens: near(answerTokens) };
      yield { client: String(conversation), conversation, turn: 0, sentMs, ...lengths };
    }
  }
  const next = ({ ask, endMs }: Done): Ask | null => {
    const sentMs = endMs + exponential(thinkMs);
    if (ask.turn + 1 === turns || sentMs >= ms) return null;
    const length = ask.promptTokens + ask.newTokens + near(promptTokens);
    return { ...ask, turn: ask.turn + 1, sentMs, promptTokens: length, newTokens: near(answerTokens) };
  };
  return simulate(fleet, conversations(), next);
}
