// Check of the simulation: compares its throughput and latencies with three real replicas, which share the cores of this machine.
import os from "node:os";
import { atMost, type Finding, findingsTable, told } from "../overload/finding.ts";
import { type LoadResult, type Outcome, runLoad } from "../serving/client/load.ts";
import { PromptSource } from "../serving/client/prompts.ts";
import { poissonArrivals, randomFrom } from "../serving/client/random.ts";
import { percentiles } from "../serving/client/statistics.ts";
import { type RunningServer, startTroupe } from "../serving/servers.ts";
import { createTarget, requestBytes } from "../serving/target.ts";
import type { Ask } from "./replica.ts";
import { simulate } from "./simulate.ts";
import { measureStepTimes, type StepTimes, stepMs } from "./step-times.ts";

const replicas = 3;
const slots = 32;
const threads = 1;
const contextEach = 1024;
const requestsEach = 160;
const idleRequests = 12;
const busyRequests = 160;
const shape = { wordCount: 60, sharedCount: 0, spread: 0.5 };
/** Mean number of tokens of a prompt, including the chat template. */
const meanPrompt = 84;
const meanAnswer = 48;
/** Flags of the measured servers. The step times are of the wasm engine, and the simulation has no speculative decoding. */
const fixedFlags = ["--engine", "wasm", "--speculation", "off"];
const mostError = 0.15;

export interface CheckOptions {
  readonly model: string;
  readonly flags: readonly string[];
  /** Rates in requests per second; null = fixed fractions of the estimated maximum rate. */
  readonly rates: readonly number[] | null;
  readonly seed: number;
}

export async function checkTable({ model, flags: given, rates, seed }: CheckOptions): Promise<string> {
  const flags = [...fixedFlags, ...given];
  const lengths = { prompt: meanPrompt, answer: meanAnswer };
  const measured = await measureStepTimes(model, threads, ["--max-seqs", String(slots), ...flags], lengths);
  const settings = { model, threads, sequences: slots, context: slots * contextEach, flags };
  const servers: RunningServer[] = [];
  try {
    for (let i = 0; i < replicas; i++) servers.push(await startTroupe(settings));
    const load = new RealLoad(servers, seed);
    const times = { ...measured, requestMs: await load.requestMs(measured) };
    const atOnce = await load.stepsAtOnce();
    const most = mostPerSecond(times, atOnce);
    process.stderr.write(`${atOnce.toFixed(2)} steps at once, at most ${most.toFixed(1)} requests/s\n`);
    const tables: string[] = [];
    for (const perSecond of rates ?? [0.5, 0.7, 0.9].map((share) => Number((share * most).toFixed(1)))) {
      tables.push(findingsTable(`${perSecond} requests/s`, await compare(load, perSecond, times, atOnce)));
      process.stderr.write(`${tables.at(-1)}\n`);
    }
    const points = times.decode.map(([count, ms]) => `${ms.toFixed(1)} ms for ${count}`).join(", ");
    const head =
      `decode: ${points}; prompt token ${times.promptTokenMs.toFixed(2)} ms; request ${times.requestMs.toFixed(1)} ms; ` +
      `${os.availableParallelism()} cores can run ${atOnce.toFixed(2)} steps at once, ${most.toFixed(1)} requests/s`;
    return [head, ...tables].join("\n\n");
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

/** Estimates the maximum rate of the three replicas together, with all slots busy, in requests per second. */
function mostPerSecond(times: StepTimes, atOnce: number): number {
  const decodeMs = (stepMs(times, slots, 0) / slots) * meanAnswer;
  const prefillMs = times.promptTokenMs * meanPrompt;
  return (Math.min(replicas, atOnce) * 1000) / (decodeMs + prefillMs);
}

async function compare(load: RealLoad, perSecond: number, times: StepTimes, atOnce: number): Promise<Finding[]> {
  const { results, asks } = await load.run(perSecond);
  const failed = results.flatMap(({ outcomes }) => outcomes).filter(({ error }) => error !== null);
  const outcomes = results.flatMap((result) => result.outcomes).filter(({ error }) => error === null);
  const firstMs = percentiles(outcomes.map(({ startMs, firstTextMs }) => firstTextMs - startMs));
  const wallMs = Math.max(...results.map((result) => result.wallMs));
  const tokens = outcomes.reduce((sum, { usage }) => sum + (usage?.completion_tokens ?? 0), 0);
  const simulated = simulate(
    {
      ...{ replicas, slots, maxQueue: 512, times },
      router: ({ client }) => Number(client),
      sharing: { replicas, steps: atOnce },
    },
    asks,
  );
  const simulatedMs = percentiles(simulated.done.map(({ ask, firstTokenMs }) => firstTokenMs - ask.sentMs));
  const simulatedTokens = simulated.done.reduce((sum, { ask }) => sum + ask.newTokens, 0);
  const error = (ours: number, real: number) => Math.abs(ours / real - 1);
  const line = (what: string, ours: number, real: number, unit: string): Finding[] => [
    told(`${what}: real, simulated`, `${real.toFixed(1)}, ${ours.toFixed(1)} ${unit}`),
    atMost(`${what}: error`, error(ours, real), mostError),
  ];
  return [
    told("requests, failed", `${asks.length}, ${failed.length}`),
    ...line("throughput", (simulatedTokens / simulated.endMs) * 1000, (tokens / wallMs) * 1000, "tokens/s"),
    ...line("first token p50", simulatedMs.p50, firstMs.p50, "ms"),
    ...line("first token p99", simulatedMs.p99, firstMs.p99, "ms"),
    told("cores busy in the simulation", `${((simulated.utilization * replicas * 100) / atOnce).toFixed(0)} %`),
  ];
}

/** Load generator: sends requests to the real replicas. */
class RealLoad {
  readonly #servers: readonly RunningServer[];
  readonly #prompts: PromptSource;
  readonly #seed: number;
  #rounds = 0;

  constructor(servers: readonly RunningServer[], seed: number) {
    this.#servers = servers;
    this.#prompts = new PromptSource(seed);
    this.#seed = seed;
  }

  /** Measures the overhead of a request on an idle server: the time to first token without the computation. Returns half of it, in ms. */
  async requestMs(times: StepTimes): Promise<number> {
    const [server] = this.#servers;
    if (server === undefined) throw new Error("no server");
    const { outcomes } = await this.#send(server, idleRequests, { kind: "clients", count: 1 });
    const beside = outcomes
      .filter(({ error }) => error === null)
      .map(({ startMs, firstTextMs, usage }) => firstTextMs - startMs - stepMs(times, 0, computedTokens(usage)));
    // Half of this overhead is assumed to be before the computation, the other half after it.
    return Math.max(percentiles(beside).p50, 0) / 2;
  }

  /**
   * Measures how many steps (forward passes) the machine can run at once at full speed. This is the speed of all servers running at
   * once, divided by the speed of one server, with all slots busy. The result is below the number of cores, because HTTP and this
   * process need CPU time too, and because cores share caches.
   */
  async stepsAtOnce(): Promise<number> {
    const one = await this.#tokensPerSecond(this.#servers.slice(0, 1));
    return (await this.#tokensPerSecond(this.#servers)) / one;
  }

  async #tokensPerSecond(servers: readonly RunningServer[]): Promise<number> {
    const results = await Promise.all(
      servers.map((server) => this.#send(server, busyRequests, { kind: "clients", count: slots })),
    );
    const tokens = results.flatMap(({ outcomes }) => outcomes.map(({ usage }) => usage?.completion_tokens ?? 0));
    const wallMs = Math.max(...results.map((result) => result.wallMs));
    return (tokens.reduce((sum, count) => sum + count, 0) / wallMs) * 1000;
  }

  /** Sends requests at random times. Returns the results, and the same requests (times and lengths) as input for the simulation. */
  async run(perSecond: number): Promise<{ results: LoadResult[]; asks: Ask[] }> {
    const round = ++this.#rounds;
    const results = await Promise.all(
      this.#servers.map((server, i) => {
        const atMs = poissonArrivals(perSecond / replicas, requestsEach, randomFrom(this.#seed, round, i));
        return this.#send(server, requestsEach, { kind: "arrivals", atMs });
      }),
    );
    const all = results.flatMap(({ outcomes }, i) => outcomes.map((outcome) => ({ ...outcome, replica: i })));
    const firstMs = Math.min(...all.map(({ startMs }) => startMs));
    const asks = all
      .filter(({ usage }) => usage !== null)
      .sort((a, b) => a.startMs - b.startMs)
      .map(({ startMs, usage, replica }, conversation) => ({
        ...{ client: String(replica), conversation, turn: 0, sentMs: startMs - firstMs },
        promptTokens: computedTokens(usage),
        newTokens: usage?.completion_tokens ?? 0,
      }));
    return { results, asks };
  }

  async #send(server: RunningServer, count: number, pace: Parameters<typeof runLoad>[0]["pace"]): Promise<LoadResult> {
    const target = await createTarget("replica", { ...server, model: null, apiKey: null, pids: [] });
    const requests = this.#prompts.round(count, shape).map(({ text, answerShare }) => {
      const maxTokens = Math.max(1, Math.round(meanAnswer * answerShare));
      return requestBytes(target, { endpoint: "chat", maxTokens, temperature: 0, ignoreEos: true }, text);
    });
    return runLoad({ url: target.url, endpoint: "chat", requests, pace }, () => {});
  }
}

/** Returns the number of prompt tokens that were computed. The prefix cache has the others, such as the start of the chat template. */
function computedTokens(usage: Outcome["usage"]): number {
  return Math.max((usage?.prompt_tokens ?? 0) - (usage?.prompt_tokens_details?.cached_tokens ?? 0), 1);
}
