// `bench tune`: checks `troupe tune`. Compares the speed of the configuration that it recommends with the best one of a grid measured by
// `troupe bench`, and its memory estimates with the measured memory.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import arg from "arg";
import { median, table } from "../../cli/bench/report.ts";
import { mixedSpeed } from "../../cli/tune/measure/score.ts";
import { threadCounts } from "../../cli/tune/tuning.ts";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { computeThreads } from "../../runtime/host/cores.ts";
import { output, troupe } from "../command.ts";
import { report } from "../results.ts";
import { memoryMethod, memoryRows } from "./memory.ts";

export const usage = `npm run bench -- tune [FLAGS]: speed of the recommendation of troupe tune, relative to the best of a grid, and memory estimates

  --model ID            model; default: the default model
  --budget 60           duration of a tuning in seconds
  --tunings 3           number of tunings
  --rounds 2            rounds over the grid, in alternating order
  --prompt-tokens 128 --new-tokens 8
  --save
`;

const batched = 16;

interface Cell {
  readonly isq: string | null;
  readonly engine: string;
  readonly threads: number;
}

interface Tuned {
  readonly candidates: readonly (Cell & { readonly recommended: boolean })[];
  readonly measured_seconds: number;
}

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...{ "--model": String, "--budget": Number, "--tunings": Number, "--rounds": Number },
      ...{ "--prompt-tokens": Number, "--new-tokens": Number, "--save": Boolean },
    },
    { argv: [...argv] },
  );
  const { path } = await resolveModel(flags["--model"] ?? defaultPackage);
  const { "--budget": budget = 60, "--tunings": tunings = 3, "--rounds": rounds = 2 } = flags;
  const { "--prompt-tokens": promptTokens = 128, "--new-tokens": newTokens = 8 } = flags;
  const folder = mkdtempSync(join(tmpdir(), "troupe-bench-tune-"));
  // Converted models go into this folder, not into the user's cache.
  process.env.XDG_CACHE_HOME = folder;
  try {
    const memory = await memoryRows(path, folder);
    const tuned: Tuned[] = [];
    for (let i = 0; i < tunings; i++) tuned.push(await tune(path, budget));
    const cells = gridOf(tuned);
    const speeds = await measureGrid(path, cells, { rounds, promptTokens, newTokens });
    const best = Math.max(...speeds);
    const picks = tuned.map(({ candidates }) => candidates.find(({ recommended }) => recommended) as Cell);
    const ratios = picks.map((pick) => (speeds[cells.findIndex((cell) => isSame(cell, pick))] ?? 0) / best);
    const lines = cells.map((cell, i) => {
      const speed = speeds[i] as number;
      const count = picks.filter((pick) => isSame(cell, pick)).length;
      return [
        cell.isq ?? "as it is",
        cell.engine,
        String(cell.threads),
        speed.toFixed(1),
        (speed / best).toFixed(3),
        count ? `${count} x` : "",
      ];
    });
    report(
      {
        name: "tune",
        title: "What `tune` picks over the best of a grid, and its estimates of memory",
        method:
          `${tunings} tunings with profile fast and ${budget} s, then every cell of the grid by \`troupe bench\`, ${rounds} ` +
          `rounds in alternating order, the fastest round of each cell: prompts of ${promptTokens} tokens, ${newTokens} new tokens, 1 and ${batched} ` +
          "sequences. Speed: tokens/s of the mixed load that tune scores. " +
          `Tunings took ${tuned.map((one) => one.measured_seconds.toFixed(0)).join(", ")} s; their picks over the best of ` +
          `the grid: ${ratios.map((ratio) => ratio.toFixed(3)).join(", ")}, median ${median(ratios).toFixed(3)}. ${memoryMethod}.`,
        body: [
          table(["isq", "engine", "threads", "tokens/s", "over the best", "picked"], lines),
          table(["isq", "weights", "engine", "estimate, MiB", "resident, MiB", "estimate over resident"], memory),
        ].join("\n\n"),
      },
      flags["--save"] ?? false,
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function tune(path: string, budget: number): Promise<Tuned> {
  const flags = ["-m", path, "--cpu", "--profile", "fast", "--budget", String(budget), "--json"];
  return JSON.parse(await output(process.execPath, [troupe, "tune", ...flags])) as Tuned;
}

/** Returns each candidate (quantization and engine) of the first run of `troupe tune`, combined with each number of threads. */
function gridOf([first]: readonly Tuned[]): Cell[] {
  const counts = threadCounts(computeThreads(0));
  return (first?.candidates ?? []).flatMap(({ isq, engine }) => counts.map((threads) => ({ isq, engine, threads })));
}

function isSame(one: Cell, other: Cell): boolean {
  return one.isq === other.isq && one.engine === other.engine && one.threads === other.threads;
}

interface GridSizes {
  readonly rounds: number;
  readonly promptTokens: number;
  readonly newTokens: number;
}

/** Returns the speed of each cell in its fastest round, because other programs on the machine can only slow a round down. */
async function measureGrid(path: string, cells: readonly Cell[], { rounds, ...sizes }: GridSizes): Promise<number[]> {
  const speeds = new Map<Cell, number>();
  for (let round = 0; round < rounds; round++) {
    for (const cell of round % 2 === 0 ? cells : cells.toReversed()) {
      const speed = await measureCell(path, cell, sizes);
      speeds.set(cell, Math.max(speeds.get(cell) ?? 0, speed));
      process.stderr.write(`${cell.isq ?? "as it is"} ${cell.engine} ${cell.threads}: ${speed.toFixed(1)}\n`);
    }
  }
  return cells.map((cell) => speeds.get(cell) ?? 0);
}

async function measureCell(path: string, cell: Cell, sizes: Omit<GridSizes, "rounds">): Promise<number> {
  const { isq, engine, threads } = cell;
  const lengths = ["--prompt-len", String(sizes.promptTokens), "--gen-len", String(sizes.newTokens)];
  // `troupe bench` also measures half of the slots. With 32 slots this gives the speed of 16 sequences.
  const flags = ["--engine", engine, "--threads", String(threads), "--max-seqs", String(2 * batched), "--cpu"];
  const quantization = isq === null ? [] : ["--isq", isq];
  const rounds = ["--iterations", "2", "--warmup", "0", "--json"];
  const text = await output(process.execPath, [
    troupe,
    "bench",
    "-m",
    path,
    ...flags,
    ...quantization,
    ...lengths,
    ...rounds,
  ]);
  const { rows } = JSON.parse(text) as { rows: { kind: string; sequences: number; rounds: number[] }[] };
  const of = (kind: string, sequences: number) =>
    Math.max(...(rows.find((row) => row.kind === kind && row.sequences === sequences)?.rounds ?? [Number.NaN]));
  return mixedSpeed({ prompt: of("prefill", 1), decode: of("decode", 1), batchedDecode: of("decode", batched) });
}
