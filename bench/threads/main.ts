// `bench threads`: speed of an engine with several numbers of compute threads, compared with the speed at its default number. Can be
// limited to a list of CPUs or to a CPU quota.
import { mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import arg from "arg";
import { median, type Row, table } from "../../cli/bench/report.ts";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { ServerError } from "../../runtime/errors.ts";
import { physicalCores } from "../../runtime/host/cores.ts";
import { engineName, output, troupe } from "../command.ts";
import { report } from "../results.ts";

export const usage = `npm run bench -- threads [FLAGS]: speed of an engine by number of threads, compared with its default number

  --engine NAME         wasm or llama; repeatable; default: both
  --threads 1,2,4,8,16  thread counts; default: those of this list that are not above the number of cores
  --cpus LIST           hardware threads to use, in the format of taskset
  --quota CORES         CPU quota in cores, by a cgroup; needs root
  --model ID --rounds 3 --save
`;

const usualCounts = [1, 2, 4, 8, 16];
/** Thread count with which the engine chooses the number of threads itself. */
const ownChoice = 0;
const groupName = `troupe-bench-${process.pid}`;
const quotaPeriodUs = 100_000;

interface Limits {
  readonly cpus: string | null;
  /** CPU quota in cores; null for none. */
  readonly quota: number | null;
}

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...{ "--engine": [String], "--threads": String, "--cpus": String, "--quota": Number },
      ...{ "--model": String, "--rounds": Number, "--save": Boolean },
    },
    { argv: [...argv] },
  );
  const { path } = await resolveModel(flags["--model"] ?? defaultPackage);
  const engines = (flags["--engine"] ?? ["wasm", "llama"]).map(engineName);
  const counts = [ownChoice, ...countsOf(flags["--threads"])];
  const limits: Limits = { cpus: flags["--cpus"] ?? null, quota: flags["--quota"] ?? null };
  const rounds = flags["--rounds"] ?? 3;
  const lines: string[][] = [];
  for (const engine of engines) {
    const measured: Row[][][] = counts.map(() => []);
    for (let round = 0; round < rounds; round++) {
      for (const [i, threads] of counts.entries()) {
        process.stderr.write(`${engine}, round ${round + 1} of ${rounds}, ${threads || "its own"} threads\n`);
        measured[i]?.push(await measure(["-m", path, "--engine", engine, "--threads", String(threads)], limits));
      }
    }
    lines.push(...linesOf(engine, counts, measured));
  }
  const allowed = [
    limits.cpus === null ? "all hardware threads" : `hardware threads ${limits.cpus}`,
    limits.quota === null ? "no quota" : `${limits.quota} cores of processor time`,
  ];
  report(
    {
      name: "threads",
      title: "Speed by number of compute threads",
      method:
        `${allowed.join(", ")}. ${rounds} alternating rounds, medians of tokens/s. The last column is what the engine takes by ` +
        "itself (threads = 0) over the best number by hand.",
      body: table(["engine", "what", "its own", ...counts.slice(1).map((count) => `${count} threads`), "ratio"], lines),
    },
    flags["--save"] ?? false,
  );
}

function countsOf(list: string | undefined): number[] {
  const counts = list?.split(",").map(Number) ?? usualCounts.filter((count) => count <= physicalCores());
  if (counts.every((count) => Number.isInteger(count) && count > 0)) return counts;
  throw new ServerError("config_invalid", `--threads expects whole numbers above 0, split by commas; got "${list}"`);
}

/** Returns the rows of one run of `troupe bench`. */
async function measure(settings: readonly string[], limits: Limits): Promise<Row[]> {
  const lengths = ["--prompt-len", "256", "--gen-len", "32", "--depth", "16", "--max-seqs", "8"];
  const rounds = ["--iterations", "1", "--warmup", "1", "--cpu", "--json"];
  const command = [process.execPath, troupe, "bench", ...settings, ...lengths, ...rounds];
  const text = await limited(command, limits);
  return (JSON.parse(text) as { rows: Row[] }).rows;
}

async function limited(command: readonly string[], { cpus, quota }: Limits): Promise<string> {
  const [program = "", ...args] = cpus === null ? command : ["taskset", "-c", cpus, ...command];
  if (quota === null) return output(program, args);
  const group = makeGroup(quota);
  try {
    // The shell joins the cgroup and then replaces itself with the program.
    return await output("sh", ["-c", `echo $$ > ${group}/cgroup.procs && exec "$@"`, "sh", program, ...args]);
  } finally {
    rmdirSync(group);
  }
}

/** Creates a cgroup with a quota and returns its folder. Throws `config_invalid` if the user lacks the permission. */
function makeGroup(quota: number): string {
  const quotaUs = Math.round(quota * quotaPeriodUs);
  const attempts = [
    { root: "/sys/fs/cgroup/cpu", files: { "cpu.cfs_period_us": quotaPeriodUs, "cpu.cfs_quota_us": quotaUs } },
    { root: "/sys/fs/cgroup", files: { "cpu.max": `${quotaUs} ${quotaPeriodUs}` } },
  ];
  const problems: string[] = [];
  for (const { root, files } of attempts) {
    const group = join(root, groupName);
    try {
      mkdirSync(group);
      for (const [name, value] of Object.entries(files)) writeFileSync(join(group, name), String(value));
      return group;
    } catch (error) {
      problems.push((error as Error).message);
    }
  }
  throw new ServerError("config_invalid", `--quota expects that a cgroup can be made: ${problems.join("; ")}`);
}

function linesOf(engine: string, counts: readonly number[], measured: readonly Row[][][]): string[][] {
  const [first] = measured[0] ?? [];
  return (first ?? [])
    .map((row, i) => ({
      row,
      speeds: measured.map((rounds) => median(rounds.map((rows) => rows[i]?.tokensPerSecond ?? 0))),
    }))
    .filter(({ row }) => row.kind === "prefill" || row.kind === "decode")
    .map(({ row, speeds }) => {
      const [own = 0, ...byHand] = speeds;
      const what = row.kind === "prefill" ? `prefill, ${row.promptLength} tokens` : `decode, ${row.sequences} at once`;
      const ratio = counts.length > 1 ? (own / Math.max(...byHand)).toFixed(3) : "";
      return [engine, what, ...speeds.map((speed) => speed.toFixed(1)), ratio];
    });
}
