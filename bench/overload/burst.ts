// Scenario `burst`: many more simultaneous clients than slots. If the queue has room for all of them, no request may fail.
// Otherwise exactly the excess is rejected, immediately, and the accepted clients get the throughput that 32 clients, as many as there
// are slots, get without others.
import { median } from "../../cli/bench/report.ts";
import { percentiles } from "../serving/client/statistics.ts";
import { type Answer, ask } from "./client.ts";
import { atLeast, exactly, type Finding, silence, told } from "./finding.ts";
import { type ScenarioOptions, type Server, withServer } from "./server.ts";
import { askInTurns, countOf, outputRate, slots, Workload } from "./workload.ts";

export const clients = 500;
const roomyQueue = 512;
const tightQueue = 64;

export async function burst(options: ScenarioOptions): Promise<Finding[]> {
  const roomy = await withServer(options, ["--max-queue", String(roomyQueue)], roomyBurst);
  const tight = await withServer(options, ["--max-queue", String(tightQueue)], (server) =>
    tightBursts(server, options.rounds),
  );
  return [...roomy, ...tight];
}

async function roomyBurst(server: Server): Promise<Finding[]> {
  const load = new Workload(1);
  const answers = await Promise.all(load.questions(clients).map((question) => ask(server.port, question)));
  return [
    exactly(`queue ${roomyQueue}: answered in full`, countOf(answers, "done"), clients),
    told(`queue ${roomyQueue}: output tokens/s`, outputRate(answers).toFixed(0)),
    silence(`queue ${roomyQueue}: warned of`, server.complaints()),
  ];
}

async function tightBursts(server: Server, rounds: number): Promise<Finding[]> {
  const load = new Workload(2);
  const accepted = slots + tightQueue;
  await askInTurns(server.port, load.questions(slots), slots);
  const all: Answer[] = [];
  const goodputs: number[] = [];
  const plainRates: number[] = [];
  for (let round = 0; round < rounds; round++) {
    plainRates.push(outputRate(await askInTurns(server.port, load.questions(accepted), slots)));
    const answers = await Promise.all(load.questions(clients).map((question) => ask(server.port, question)));
    goodputs.push(outputRate(answers));
    all.push(...answers);
  }
  const refused = all.filter(({ outcome }) => outcome === "refused");
  const well = refused.filter(({ status, retryAfter }) => status === 429 && Number(retryAfter) > 0);
  const { p50, p99 } = percentiles(refused.map(({ sentMs, headMs }) => headMs - sentMs));
  const ratio = median(goodputs.map((rate, round) => rate / (plainRates[round] ?? 0)));
  const name = `queue ${tightQueue}`;
  return [
    exactly(`${name}: refused, ${rounds} bursts`, refused.length, rounds * (clients - accepted)),
    exactly(`${name}: of them with 429 and Retry-After`, well.length, refused.length),
    exactly(`${name}: answered in full`, countOf(all, "done"), rounds * accepted),
    told(`${name}: time to refusal p50 / p99`, `${p50.toFixed(0)} / ${p99.toFixed(0)} ms`),
    told(`${name}: output tokens/s, 32 clients`, median(plainRates).toFixed(0)),
    told(`${name}: output tokens/s of the accepted`, median(goodputs).toFixed(0)),
    atLeast(`${name}: the second over the first`, ratio, 0.9),
    silence(`${name}: warned of`, server.complaints()),
  ];
}
