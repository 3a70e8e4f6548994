// `bench http`: cost of the main thread, without the cost of an engine. The real inference service ("front"), generation
// thread, step loop and HTTP server serve a model without weights at a fixed rate. The front runs on the main thread of this
// process; the clients run in a separate process.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import arg from "arg";
import { InferenceService } from "../../actors/front/inference-service.ts";
import { parseArguments } from "../../cli/arguments.ts";
import { frontOptions, placeStopMs } from "../../cli/assembly/service-options.ts";
import { table } from "../../cli/bench/report.ts";
import { resolveConfig } from "../../cli/config/config.ts";
import { createProgress } from "../../cli/progress.ts";
import { smallestModel } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { createApp } from "../../http/app.ts";
import { listen } from "../../http/server/listen.ts";
import { ServerError } from "../../runtime/errors.ts";
import { createLogger } from "../../runtime/log/log.ts";
import { childrenOf, threadsOf } from "../proc.ts";
import { report } from "../results.ts";
import type { RoundMetrics } from "../serving/metrics.ts";
import { type EndpointName, endpointNamed } from "../serving/target.ts";
import { type FrontCost, meterFront } from "./front-meter.ts";
import { pacedModule } from "./place.ts";

/** Time added before and after the measurement, so that all streams have begun and none ends too early. */
const marginSeconds = 5;
const pollMs = 50;
/** Flags that prefill each prompt in one piece, because prompts cost this model nothing. */
const atOnce = [
  "--isolate",
  "true",
  "--max-num-batched-tokens",
  "65536",
  "--decode-slowdown",
  "1000",
  "--max-step-ms",
  "60000",
];

interface Workload {
  readonly endpoint: EndpointName;
  readonly tokensPerSecond: number;
  readonly streams: number;
}

interface Measured extends Workload {
  readonly cost: FrontCost;
  /** Results measured by the clients. */
  readonly load: RoundMetrics;
}

export const usage = `npm run bench -- http [FLAGS]: cost of the main thread, with a model without weights

  --endpoints chat,responses,messages
  --rates 1000,20000    tokens per second, of all streams together
  --streams 32,512      numbers of simultaneous streams
  --seconds 8           duration of each measurement
  --model ID --save
`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...{ "--model": String, "--rates": String, "--streams": String, "--endpoints": String },
      ...{ "--seconds": Number, "--save": Boolean },
    },
    { argv: [...argv] },
  );
  const endpoints = (flags["--endpoints"] ?? "chat,responses,messages").split(",").map(endpointNamed);
  const rates = (flags["--rates"] ?? "1000,20000").split(",").map(Number);
  const streams = (flags["--streams"] ?? "32,512").split(",").map(Number);
  const seconds = flags["--seconds"] ?? 8;
  // Only the vocabulary and the template of the model are used; its weights are never read.
  const { path } = await resolveModel(flags["--model"] ?? smallestModel);
  const measured: Measured[] = [];
  for (const tokensPerSecond of rates) {
    for (const count of streams) {
      for (const endpoint of endpoints) {
        measured.push(await measure(path, { endpoint, tokensPerSecond, streams: count }, seconds));
      }
    }
  }
  report(
    {
      name: "http",
      title: "The front alone: a model without weights that makes tokens at a set rate",
      method:
        `Real step loop, agents thread, front and HTTP edge, frames as serve sends them; the clients are another process on ` +
        `the same cores. ${seconds} s while all streams run; shares are of one core. Delivered: streams over the median ` +
        "time a token takes at a client. Delay: how late a turn of the front's event loop is, at a resolution of 1 ms, the " +
        "interval subtracted.",
      body: resultTable(measured),
    },
    flags["--save"] ?? false,
  );
}

async function measure(model: string, workload: Workload, seconds: number): Promise<Measured> {
  const log = createLogger({ level: "warn", format: "text" });
  const progress = createProgress();
  const config = resolveConfig({
    command: "serve",
    flags: parseArguments(["serve", "-m", model, "--max-seqs", String(workload.streams), ...atOnce]).flags,
    environment: {},
    defaultModel: model,
  });
  const options = await frontOptions(config, log, progress);
  const threadsBefore = new Set(threadsOf(process.pid));
  const front = new InferenceService({ ...options, modelModule: pacedModule(workload.tokensPerSecond) });
  const app = createApp({ inference: front, log, config: { accessLog: false } });
  const listener = await listen(app, { host: "127.0.0.1", port: 0, edge: config.troupe.edge, log });
  try {
    await front.start();
    progress.stop();
    const [modelPid = 0] = childrenOf(process.pid);
    const clients = startClients(`http://127.0.0.1:${listener.port}`, workload, seconds);
    const tooSoon = clients.done.then(() => {
      throw new ServerError("internal", `the clients ended before all streams ran; use more --seconds`);
    });
    await Promise.race([allRunning(front, model, workload.streams), tooSoon]);
    // The threads that have started since `threadsBefore` are the generation thread and its text workers. The inference
    // service starts them.
    const agentsThreads = threadsOf(process.pid).filter((thread) => !threadsBefore.has(thread));
    const finish = meterFront({ agentsThreads, modelPid, clientPid: clients.process.pid ?? 0 });
    await sleep(seconds * 1000);
    const cost = finish();
    return { ...workload, cost, load: await clients.done };
  } finally {
    listener.forceClose();
    await front.stop(placeStopMs);
  }
}

interface Clients {
  readonly process: ChildProcess;
  readonly done: Promise<RoundMetrics>;
}

/** Starts `bench serving` in a separate process, with `streams` clients that each read one long response. */
function startClients(url: string, { endpoint, streams, tokensPerSecond }: Workload, seconds: number): Clients {
  const folder = mkdtempSync(join(tmpdir(), "troupe-bench-"));
  const json = join(folder, "clients.json");
  const tokens = Math.ceil((tokensPerSecond * (seconds + marginSeconds)) / streams);
  const counts = { concurrency: streams, requests: streams, "max-tokens": tokens, warmup: 0, rounds: 1 };
  const flags = Object.entries(counts).map(([name, value]) => `--${name}=${value}`);
  const program = process.argv[1] ?? "";
  const where = ["--url", url, "--endpoint", endpoint, "--json", json];
  const child = spawn(process.execPath, [program, "serving", ...where, ...flags], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let complaint = "";
  child.stderr.on("data", (data: Buffer) => {
    complaint += data.toString();
  });
  const done = once(child, "exit").then(([code]) => {
    if (code !== 0) throw new ServerError("internal", `the clients ended with code ${code}:\n${complaint}`);
    const { reports } = JSON.parse(readFileSync(json, "utf8")) as { reports: { ours: RoundMetrics[] }[] };
    rmSync(folder, { recursive: true });
    return reports[0]?.ours[0] as RoundMetrics;
  });
  return { process: child, done };
}

/** Waits until every stream has a slot and has received its first tokens. */
async function allRunning(front: InferenceService, model: string, streams: number): Promise<void> {
  let tokensThen: number | null = null;
  for (;;) {
    const { running, tokens } = await front.statistics(model);
    if (running === streams) tokensThen ??= tokens;
    if (tokensThen !== null && tokens >= tokensThen + 2 * streams) return;
    await sleep(pollMs);
  }
}

function resultTable(all: readonly Measured[]): string {
  const share = (value: number) => `${(value * 100).toFixed(1)} %`;
  const header = ["asked for", "streams", "protocol", "delivered", "front", "busy", "agents", "model", "clients"];
  const rows = all.map(({ tokensPerSecond, streams, endpoint, cost, load }) => [
    `${tokensPerSecond} tokens/s`,
    String(streams),
    endpoint,
    ((streams / load.perTokenMs.p50) * 1000).toFixed(0),
    ...[cost.front, cost.utilization, cost.agents, cost.model, cost.client].map(share),
    ...[cost.delayMs.p50, cost.delayMs.p99, cost.delayMs.max].map((ms) => ms.toFixed(1)),
  ]);
  const failures = all.flatMap(({ tokensPerSecond, streams, endpoint, load }) =>
    Object.entries(load.errors).map(
      ([kind, count]) => `${endpoint}, ${tokensPerSecond} tokens/s over ${streams}: ${count} failed with "${kind}"`,
    ),
  );
  return [table([...header, "delay ms p50", "p99", "max"], rows), ...failures].join("\n");
}
