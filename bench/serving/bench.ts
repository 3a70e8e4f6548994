// `bench serving`: load generator for any OpenAI-compatible server. If a second server is given, rounds alternate and both
// servers get the same prompts.
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { createProgress, type Progress } from "../../cli/progress.ts";
import { ServerError } from "../../runtime/errors.ts";
import { report } from "../results.ts";
import { type BoundOptions, boundRate } from "./batched-bench.ts";
import { type LoadResult, type Pace, runLoad } from "./client/load.ts";
import { type CountedPrompt, type Prompt, type PromptShape, PromptSource, shapeFor } from "./client/prompts.ts";
import { poissonArrivals, randomFrom } from "./client/random.ts";
import { type RoundMetrics, roundMetrics } from "./metrics.ts";
import { type LoadKind, parseOptions, type ServingOptions, type StartOptions } from "./options.ts";
import { type LoadReport, loadTable } from "./report.ts";
import { sampleMemory } from "./resident-memory.ts";
import { type RunningServer, type ServerSettings, startPeer, startTroupe } from "./servers.ts";
import { restMs } from "./sides.ts";
import { createTarget, type EndpointName, requestBytes, type Target } from "./target.ts";

const requestsPerClient = 4;
const fewestRequests = 16;
/** Lengths in words of the two prompts from which the tokens per word are derived. */
const countedLengths = [8, 72] as const;

export { usage } from "./options.ts";

export async function main(argv: readonly string[]): Promise<void> {
  const options = parseOptions(argv);
  const reports = await measureServers(options);
  show(options, reports);
}

/** Runs the loads on the given or started servers; with two servers, in alternating rounds. */
export async function measureServers(options: ServingOptions): Promise<LoadReport[]> {
  const started: RunningServer[] = [];
  const progress = createProgress();
  try {
    const [ours, peer] = await findTargets(options, started);
    return await new ServingRun(options, ours, peer, progress).all();
  } finally {
    progress.stop();
    await Promise.all(started.map((server) => server.stop()));
  }
}

async function findTargets(options: ServingOptions, started: RunningServer[]): Promise<[Target, Target | null]> {
  const { server, peer, start, model, apiKey } = options;
  const keep = async (starting: Promise<RunningServer>) => {
    const running = await starting;
    started.push(running);
    return { ...running, pids: [running.pid] };
  };
  const given = server ?? (await keep(startTroupe(settings(start, start.flags), start.frontDelay)));
  const ours = await createTarget("ours", { takeLoopDelay: null, ...given, model, apiKey });
  const givenPeer = start.peerProgram
    ? await keep(startPeer(start.peerProgram, settings(start, start.peerFlags)))
    : peer;
  return [ours, givenPeer && (await createTarget("peer", { takeLoopDelay: null, ...givenPeer, model, apiKey }))];
}

function settings(
  { modelFile, threads, sequences, context, gpu }: StartOptions,
  flags: readonly string[],
): ServerSettings {
  return { model: modelFile ?? "", threads, sequences, context, flags, gpu };
}

class ServingRun {
  readonly #options: ServingOptions;
  readonly #targets: readonly Target[];
  readonly #ours: Target;
  readonly #progress: Progress;
  readonly #prompts: PromptSource;

  constructor(options: ServingOptions, ours: Target, peer: Target | null, progress: Progress) {
    this.#options = options;
    this.#ours = ours;
    this.#targets = peer ? [ours, peer] : [ours];
    this.#progress = progress;
    this.#prompts = new PromptSource(options.seed);
  }

  async all(): Promise<LoadReport[]> {
    const shape = await this.#shape();
    const reports: LoadReport[] = [];
    for (const load of this.#options.loads) reports.push(await this.#load(load, shape));
    return reports;
  }

  /** Asks the server for the token counts of two prompts, and returns the number of words for the wanted number of tokens. */
  async #shape(): Promise<PromptShape> {
    const [few, many] = [await this.#count(countedLengths[0]), await this.#count(countedLengths[1])];
    return shapeFor(this.#options, few, many);
  }

  async #count(words: number): Promise<CountedPrompt> {
    const prompts = this.#prompts.round(1, { wordCount: words, sharedCount: 0, spread: 0 });
    const request = requestBytes(this.#ours, { ...this.#options, maxTokens: 1 }, prompts[0]?.text ?? "");
    const { endpoint } = this.#options;
    const { outcomes } = await runLoad(
      { url: this.#ours.url, endpoint, requests: [request], pace: { kind: "clients", count: 1 } },
      () => {},
    );
    const tokens = outcomes[0]?.usage?.prompt_tokens;
    if (tokens !== undefined) return { words, tokens };
    throw new ServerError("config_invalid", `${this.#ours.url.origin} did not answer a request: ${outcomes[0]?.error}`);
  }

  async #load(load: LoadKind, shape: PromptShape): Promise<LoadReport> {
    const { rounds } = this.#options;
    const clients = load.kind === "clients" ? load.amount : fewestRequests;
    const requests = this.#options.requests ?? Math.max(fewestRequests, clients * requestsPerClient);
    const warmup = this.#prompts.round(this.#options.warmup ?? clients, shape);
    for (const target of this.#targets) await this.#send(target, warmup, { kind: "clients", count: clients });
    const sides: RoundMetrics[][] = this.#targets.map(() => []);
    for (let round = 0; round < rounds; round++) {
      const prompts = this.#prompts.round(requests, shape);
      const pace = this.#pace(load, requests, round);
      const label = `${load.amount} ${load.kind === "clients" ? "at once" : "arrivals/s"}, round ${round + 1} of ${rounds}`;
      const measured: RoundMetrics[] = [];
      for (const target of this.#targets) {
        await sleep(restMs);
        measured.push(await this.#measure(target, prompts, pace, label));
      }
      const bound = await this.#bound(load, measured[0]);
      for (const [side, metrics] of measured.entries()) {
        sides[side]?.push({ ...metrics, overBound: bound && metrics.outputTokensPerSecond / bound });
      }
    }
    return { load, ours: sides[0] ?? [], peers: sides[1] ?? [] };
  }

  #pace({ kind, amount }: LoadKind, requests: number, round: number): Pace {
    if (kind === "clients") return { kind, count: amount };
    return { kind, atMs: poissonArrivals(amount, requests, randomFrom(this.#options.seed, round)) };
  }

  async #measure(target: Target, prompts: readonly Prompt[], pace: Pace, label: string): Promise<RoundMetrics> {
    const memory = sampleMemory(target.pids);
    await target.takeLoopDelay?.();
    let done = 0;
    const load = await this.#send(target, prompts, pace, () => {
      this.#progress.update(`${label}, ${target.label}`, ++done, prompts.length);
    });
    const frontDelayMs = (await target.takeLoopDelay?.()) ?? null;
    return roundMetrics(load, { peakMiB: memory.stop(), frontDelayMs });
  }

  #send(target: Target, prompts: readonly Prompt[], pace: Pace, onDone = () => {}): Promise<LoadResult> {
    const requests = prompts.map(({ text, answerShare }) => {
      const maxTokens = Math.max(1, Math.round(this.#options.maxTokens * answerShare));
      return requestBytes(target, { ...this.#options, maxTokens }, text);
    });
    return runLoad({ url: target.url, endpoint: this.#options.endpoint, requests, pace }, onDone);
  }

  /**
   * Returns the tokens/s of llama-batched-bench with the same number of sequences and their measured mean lengths; null if it
   * was not requested.
   */
  async #bound(load: LoadKind, metrics: RoundMetrics | undefined): Promise<number | null> {
    const { batchedBench: program, modelFile, threads, context, gpu } = this.#options.start;
    if (program === null || modelFile === null || load.kind !== "clients" || !metrics?.meanOutputTokens) return null;
    const options: BoundOptions = { program, modelFile, threads, context, gpu };
    return boundRate(options, {
      sequences: load.amount,
      promptTokens: Math.round(metrics.meanPromptTokens),
      newTokens: Math.round(metrics.meanOutputTokens),
    });
  }
}

const kinds: Readonly<Record<EndpointName, string>> = {
  chat: "Streaming chat",
  responses: "Streaming responses",
  messages: "Streaming messages",
  completions: "Plain completions",
  embeddings: "Embeddings",
};

function show(options: ServingOptions, reports: readonly LoadReport[]): void {
  const hasPeer = reports.some(({ peers }) => peers.length > 0);
  const { rounds, promptTokens, sharedTokens, maxTokens, spread, temperature, seed, endpoint, json, save } = options;
  if (json !== null)
    writeFileSync(json, `${JSON.stringify({ options: { ...options, apiKey: null }, reports }, null, 2)}\n`);
  const shared = sharedTokens > 0 ? `, the first ${sharedTokens} shared within a round` : ", every prompt unique";
  report(
    {
      name: "serving",
      title: hasPeer ? "Serving, over a peer" : "Serving",
      method:
        `${rounds} ${hasPeer ? "alternating " : ""}rounds, medians and (beside them) each round; ratios are of medians. ` +
        `${kinds[endpoint]}, about ${promptTokens} tokens in${shared}` +
        `${endpoint === "embeddings" ? "" : `, at most ${maxTokens} out, temperature ${temperature}`}` +
        `${spread > 0 ? ` (each length within ${spread * 100} % of that)` : ""}, seed ${seed}; client and server on the same cores.`,
      body: reports.map(loadTable).join("\n\n\n"),
    },
    save,
  );
}
