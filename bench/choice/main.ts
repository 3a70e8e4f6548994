// `bench choice`: checks whether `engine = "auto"` chooses the faster engine on this machine, and measures what the choice adds
// to the start time. Both engines serve the same requests in turn.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { performance } from "node:perf_hooks";
import arg from "arg";
import { median, table } from "../../cli/bench/report.ts";
import type { EngineName } from "../../engines/engine.ts";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { ServerError } from "../../runtime/errors.ts";
import { engineName } from "../command.ts";
import { report } from "../results.ts";
import { measureServers } from "../serving/bench.ts";
import type { RoundMetrics } from "../serving/metrics.ts";
import { parseOptions } from "../serving/options.ts";
import type { LoadReport } from "../serving/report.ts";
import { type RunningServer, type ServerSettings, startTroupe } from "../serving/servers.ts";
import type { EndpointName } from "../serving/target.ts";
import { encoderFile } from "./encoder-file.ts";

export const usage = `npm run bench -- choice [FLAGS]: whether engine = "auto" chooses the faster engine

  --model ID            chat model; repeatable; default without --encoder: the default model
  --encoder ID          embedding model, or a folder with a BERT model's model.safetensors; repeatable
  --concurrency 1,8,32 --prompt-tokens 64 --max-tokens 64
  --threads 0 --rounds 2 --save
`;

const sequences = 32;
const contextEach = 2048;
/** Number of timed starts of each kind; the result is their median. */
const timedStarts = 3;
/**
 * Number of embedding requests in a round. With only a few requests per client, a round would last half a second, which
 * is too short to measure.
 */
const embeddingRequests = 256;

interface Subject {
  readonly path: string;
  readonly endpoint: EndpointName;
}

interface Choice {
  /** Engines chosen; more than one if the trials disagreed. */
  readonly engines: readonly EngineName[];
  /**
   * Seconds that the choice adds to the first start, which has an empty cache. `laterSeconds` is for later starts, which reuse
   * the recorded choice.
   */
  readonly firstSeconds: number;
  readonly laterSeconds: number;
}

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...{ "--model": [String], "--encoder": [String], "--concurrency": String, "--prompt-tokens": Number },
      ...{ "--max-tokens": Number, "--threads": Number, "--rounds": Number, "--save": Boolean },
    },
    { argv: [...argv] },
  );
  const encoders = flags["--encoder"] ?? [];
  const models = flags["--model"] ?? (encoders.length === 0 ? [defaultPackage] : []);
  const load = {
    "--concurrency": flags["--concurrency"] ?? "1,8,32",
    "--prompt-tokens": flags["--prompt-tokens"] ?? 64,
    "--max-tokens": flags["--max-tokens"] ?? 64,
    "--rounds": flags["--rounds"] ?? 2,
  };
  const threads = flags["--threads"] ?? 0;
  const subjects: Subject[] = [];
  for (const id of models) subjects.push({ path: (await resolveModel(id)).path, endpoint: "chat" });
  for (const id of encoders) subjects.push({ path: await encoderFile(id), endpoint: "embeddings" });
  const rows: string[][] = [];
  for (const subject of subjects) {
    const choice = await choose(subject, threads);
    rows.push(...rowsOf(subject, choice, await compare(subject, threads, load)));
  }
  report(
    {
      name: "choice",
      title: "What `auto` takes, over the better engine",
      method:
        `Both engines serve the same requests in turn, ${load["--rounds"]} rounds, medians: output tokens/s of chats of about ` +
        `${load["--prompt-tokens"]} tokens in and ${load["--max-tokens"]} out, requests/s of embeddings. The better engine of a ` +
        "model is the one with the larger product over the loads. Choosing: what a first and a later start take longer than " +
        `one with --engine, medians of ${timedStarts}.`,
      body: table(
        ["model", "at once", "wasm", "llama", "auto takes", "over the better", "choosing, first", "later"],
        rows,
      ),
    },
    flags["--save"] ?? false,
  );
}

/** Returns the settings of a server. All servers have the same numbers of sequences and context tokens, so that only the engine differs. */
function settingsOf({ path }: Subject, threads: number, flags: readonly string[]): ServerSettings {
  return { model: path, threads, sequences, context: sequences * contextEach, flags, hasShares: true };
}

/** Times starts with `engine = "auto"` on an empty cache, with a recorded choice, and with the engine set by a flag. */
async function choose(subject: Subject, threads: number): Promise<Choice> {
  const times: Record<"first" | "later" | "set", number[]> = { first: [], later: [], set: [] };
  const taken = new Set<EngineName>();
  const start = async (kind: keyof typeof times, flags: readonly string[]): Promise<EngineName> => {
    const startedMs = performance.now();
    const server = await startTroupe(settingsOf(subject, threads, flags));
    times[kind].push((performance.now() - startedMs) / 1000);
    try {
      return await engineOf(server);
    } finally {
      await server.stop();
    }
  };
  const cache = process.env.XDG_CACHE_HOME;
  for (let i = 0; i < timedStarts; i++) {
    const folder = mkdtempSync(join(tmpdir(), "troupe-choice-"));
    process.env.XDG_CACHE_HOME = folder;
    try {
      const engine = await start("first", []);
      taken.add(engine);
      await start("later", []);
      await start("set", ["--engine", engine]);
    } finally {
      if (cache === undefined) delete process.env.XDG_CACHE_HOME;
      else process.env.XDG_CACHE_HOME = cache;
      rmSync(folder, { recursive: true, force: true });
    }
  }
  const set = median(times.set);
  return { engines: [...taken], firstSeconds: median(times.first) - set, laterSeconds: median(times.later) - set };
}

async function engineOf({ url }: RunningServer): Promise<EngineName> {
  const response = await fetch(`${url}/v1/system/info`);
  const { engines } = (await response.json()) as { engines: { engine: string }[] };
  return engineName(engines[0]?.engine ?? "none");
}

/** Compares the engines. In the reports, `ours` is wasm and `peers` is llama. */
async function compare(
  subject: Subject,
  threads: number,
  load: Readonly<Record<string, string | number>>,
): Promise<LoadReport[]> {
  const servers: RunningServer[] = [];
  try {
    for (const engine of ["wasm", "llama"]) {
      servers.push(await startTroupe(settingsOf(subject, threads, ["--engine", engine])));
    }
    const [wasm, llama] = servers;
    const flags = Object.entries(load).flatMap(([flag, value]) => [flag, String(value)]);
    const urls = ["--url", wasm?.url ?? "", "--vs", llama?.url ?? ""];
    const requests = subject.endpoint === "embeddings" ? ["--requests", String(embeddingRequests)] : [];
    return await measureServers(parseOptions([...urls, "--endpoint", subject.endpoint, ...requests, ...flags]));
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

function rowsOf({ path, endpoint }: Subject, choice: Choice, reports: readonly LoadReport[]): string[][] {
  const speeds = reports.map(({ load, ours, peers }) => {
    const [wasm, llama] = [ours, peers].map((rounds) => median(rounds.map((round) => speedOf(round, endpoint)))) as [
      number,
      number,
    ];
    return { load, wasm, llama };
  });
  const advantage = speeds.reduce((product, { wasm, llama }) => product * (wasm / llama), 1);
  const better: EngineName = advantage >= 1 ? "wasm" : "llama";
  return speeds.map((speed, i) => [
    i === 0 ? basename(path) : "",
    String(speed.load.amount),
    speed.wasm.toFixed(1),
    speed.llama.toFixed(1),
    choice.engines.join(", "),
    Math.min(...choice.engines.map((engine) => speed[engine] / speed[better])).toFixed(3),
    ...(i === 0 ? [choice.firstSeconds, choice.laterSeconds].map((seconds) => `${seconds.toFixed(2)} s`) : ["", ""]),
  ]);
}

/** Returns the speed of a round. Throws if a request failed, because the speed would then mean nothing. */
function speedOf({ errors, requestsPerSecond, outputTokensPerSecond }: RoundMetrics, endpoint: EndpointName): number {
  const [failure] = Object.keys(errors);
  if (failure !== undefined) throw new ServerError("internal", `requests failed with "${failure}"`);
  return endpoint === "embeddings" ? requestsPerSecond : outputTokensPerSecond;
}
