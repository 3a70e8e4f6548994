// `bench mutants`: feeds damaged images, audio files, videos and models, and small files with huge contents, to decoders and servers.
// No file may crash a server, hang, use unbounded memory, or be rejected without an error code and message.
import { appendFileSync } from "node:fs";
import { loadavg } from "node:os";
import arg from "arg";
import { table } from "../../cli/bench/report.ts";
import { ServerError } from "../../runtime/errors.ts";
import { atMost, exactly, type Finding, findingsTable, told } from "../overload/finding.ts";
import { report } from "../results.ts";
import { MediaServer } from "./media-server.ts";
import { runMedia } from "./media-trials.ts";
import { runModels } from "./model-trials.ts";
import { type Kind, kinds, type Outcome, type Trials } from "./outcome.ts";
import { type OversizedOutcome, oversizedFiles, runOversized } from "./oversized-files.ts";
import { PeakMemory } from "./peak-memory.ts";
import { runReloads } from "./reload-trials.ts";

export const usage = `npm run bench -- mutants [FLAGS]: damaged images, audio files, videos and models

  --seed S      seed of the mutants (random)
  --count N     total number of mutants (1000)
  --first K     number of the first mutant of each kind (0); with --kind and --count 1, replays one mutant
  --kind KIND   images, audio, video, onnx, mmproj or reload (models in a running server); default: all
  --log FILE    append the outcome of each mutant as a JSON line
  --save        write bench/results/mutants.md
`;

/** Fraction of each kind in the total number of mutants (damaged files). */
const shares: Readonly<Record<Kind, number>> = {
  images: 0.35,
  audio: 0.3,
  video: 0.03,
  onnx: 0.2,
  mmproj: 0.115,
  reload: 0.005,
};
/** Every `every`-th image, audio file or video is sent to a server instead of being decoded here. */
const every = 10;
const shownBroken = 5;
/** Allowed memory of a decoder process: its limit of 1 GiB plus the memory that it can allocate before the next check. */
const decoderMiB = 1400;

interface Line {
  readonly kind: Kind;
  readonly outcomes: readonly Outcome[];
  readonly seconds: number;
  /** Peak memory of the largest descendant of this process, in MiB; the server is not counted. */
  readonly largestMiB: number;
}

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...{ "--seed": Number, "--count": Number, "--first": Number, "--kind": String, "--log": String },
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const seed = flags["--seed"] ?? Math.floor(Math.random() * 1e6);
  const count = flags["--count"] ?? 1000;
  const only = flags["--kind"] ?? null;
  const chosen = kinds.filter((kind) => only === null || kind === only);
  if (chosen.length === 0) {
    throw new ServerError("config_invalid", `--kind expects one of ${kinds.join(", ")}; got "${only}"`);
  }
  const load = loadavg()[0]?.toFixed(1);
  const server = await MediaServer.start();
  const memory = new PeakMemory(server.pid);
  const lines: Line[] = [];
  const oversized: OversizedOutcome[] = [];
  let hasEnded = true;
  try {
    for (const kind of chosen) {
      const share = only === null ? Math.round(count * shares[kind]) : count;
      const trials = { seed, first: flags["--first"] ?? 0, count: share };
      lines.push(await runKind(kind, trials, server, flags["--log"] ?? null));
    }
    if (only === null)
      for (const one of oversizedFiles) oversized.push(await tellOversized(await runOversized(one, server)));
    hasEnded = server.hasEnded;
  } finally {
    memory.stop();
    await server.stop();
  }
  const findings = findingsOf(lines, oversized, memory, { hasEnded, restarts: server.restarts });
  report(
    {
      name: "mutants",
      title: "Damaged files",
      method:
        `Seed ${seed}; \`npm run bench -- mutants --seed ${seed} --kind KIND --first NUMBER --count 1\` replays one. Mutants are made from ` +
        "real files by their structure (test/fixtures/mutants). Images, audio and videos are read by the server's decoders, and one of " +
        `${every} is sent to a server; models are loaded and compute a little. Bytes of memory are resident. Load of the machine by other ` +
        `programs at the beginning (load average of a minute): ${load}.`,
      body: [linesTable(lines), oversizedTable(oversized), findingsTable("mutants", findings)]
        .filter(Boolean)
        .join("\n\n"),
    },
    flags["--save"] ?? false,
  );
  if (findings.some(({ holds }) => holds === false)) process.exitCode = 1;
}

async function runKind(kind: Kind, trials: Trials, server: MediaServer, log: string | null): Promise<Line> {
  const outcomes: Outcome[] = [];
  const memory = new PeakMemory(process.pid, server.pid);
  const beginMs = performance.now();
  const tell = (outcome: Outcome): void => {
    outcomes.push(outcome);
    if (log !== null) appendFileSync(log, `${JSON.stringify({ kind, ...outcome })}\n`);
    if (outcome.result === "broken" || outcome.result === "ended") {
      process.stderr.write(`${kind} ${outcome.number} (${outcome.name}) ${outcome.result}: ${outcome.detail}\n`);
    }
    if (outcomes.length % 100 === 0) process.stderr.write(`${kind}: ${outcomes.length} of ${trials.count}\n`);
  };
  if (kind === "reload") await inServer((other) => runReloads(trials, other, tell));
  else if (kind === "onnx" || kind === "mmproj") await runModels(kind, trials, tell);
  else await runMedia(kind, trials, { server, every }, tell);
  memory.stop();
  const seconds = (performance.now() - beginMs) / 1000;
  return { kind, outcomes, seconds, largestMiB: memory.largestChildMiB };
}

/** Starts a separate server, calls `run` with it, and stops it. */
async function inServer(run: (server: MediaServer) => Promise<void>): Promise<void> {
  const server = await MediaServer.start();
  try {
    await run(server);
  } finally {
    await server.stop();
  }
}

function tellOversized(outcome: OversizedOutcome): OversizedOutcome {
  const { name, answer, ms, holds } = outcome;
  process.stderr.write(
    `${name}: ${answer.status} ${answer.message.slice(0, 200)}, ${(ms / 1000).toFixed(1)} s${holds ? "" : ": BROKEN"}\n`,
  );
  return outcome;
}

function findingsOf(
  lines: readonly Line[],
  oversized: readonly OversizedOutcome[],
  memory: PeakMemory,
  { hasEnded, restarts }: Pick<MediaServer, "hasEnded" | "restarts">,
): readonly Finding[] {
  const broken = lines.flatMap(({ kind, outcomes }) =>
    outcomes.filter(({ result }) => result === "broken").map((outcome) => ({ kind, outcome })),
  );
  const decoders = lines.filter(({ kind }) => ["images", "audio", "video"].includes(kind));
  return [
    exactly("crashes, hangs, errors without a name", broken.length, 0),
    ...broken
      .slice(0, shownBroken)
      .map(({ kind, outcome }) => told(`${kind} ${outcome.number}`, outcome.detail.slice(0, 150))),
    exactly("oversized files with another answer", oversized.filter(({ holds }) => !holds).length, 0),
    exactly("ends of the server", Number(hasEnded), 0),
    exactly("ends of its models' processes", restarts, 0),
    atMost(
      "memory of the largest decoder",
      Math.max(0, ...decoders.map(({ largestMiB }) => largestMiB)),
      decoderMiB,
      " MiB",
      0,
    ),
    atMost("memory of the largest child process of the server", memory.largestChildMiB, decoderMiB, " MiB", 0),
    told("memory of the server with all processes", `${Math.round(memory.allMiB)} MiB`),
  ];
}

function linesTable(lines: readonly Line[]): string {
  return table(
    [
      "mutants",
      "number",
      "read",
      "refused by name",
      "ended their process",
      "broken",
      "slowest (s)",
      "largest process (MiB)",
      "seconds",
    ],
    lines.map(({ kind, outcomes, seconds, largestMiB }) => {
      const of = (result: Outcome["result"]) => String(outcomes.filter((one) => one.result === result).length);
      const slowest = outcomes.reduce((most, { ms }) => Math.max(most, ms), 0) / 1000;
      return [
        ...[kind, String(outcomes.length), of("read"), of("refused"), of("ended"), of("broken")],
        ...[slowest.toFixed(1), String(Math.round(largestMiB)), String(Math.round(seconds))],
      ];
    }),
  );
}

function oversizedTable(oversized: readonly OversizedOutcome[]): string {
  if (oversized.length === 0) return "";
  return table(
    ["oversized file", "status", "seconds", "largest process (MiB)", "all processes (MiB)", "as promised"],
    oversized.map(({ name, answer, ms, peak, holds }) => [
      ...[name, String(answer.status), (ms / 1000).toFixed(1), String(Math.round(peak.largestChildMiB))],
      ...[String(Math.round(peak.allMiB)), holds ? "yes" : "NO"],
    ]),
  );
}
