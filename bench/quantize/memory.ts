// Peak memory of a start that quantizes a checkpoint of 1.5 GB, on both engines, compared with the size of the quantized file.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { table } from "../../cli/bench/report.ts";
import { ServerError } from "../../runtime/errors.ts";
import { troupe } from "../command.ts";
import { ownKiB, residentKiB } from "../proc.ts";
import { report } from "../results.ts";
import { sampleMemory } from "../serving/resident-memory.ts";
import { writeBigCheckpoint } from "./big-checkpoint.ts";

const shape = { layers: 24, width: 1536, feedForward: 6144, heads: 24, kvHeads: 8, vocabSize: 32_000 };
const mebi = 2 ** 20;

export async function compareMemory(level: string, save: boolean): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-memory-"));
  const checkpoint = join(folder, "model");
  try {
    const weights = await writeBigCheckpoint(checkpoint, shape);
    const rows: string[][] = [];
    for (const engine of ["wasm", "llama"]) rows.push(await start(engine, level, folder, checkpoint));
    report(
      {
        name: "quantize-memory",
        title: `Peak memory of loading ${(weights / 1e9).toFixed(2)} GB of safetensors as ${level}`,
        method:
          "`troupe bench` with a context of 256 tokens and one sequence, until it has measured. Peak of all processes, sampled every " +
          "250 ms, in MiB: with the pages of files, which the system can take back, and without them. Over: the peak without pages " +
          "of files, minus the size of the quantized file (wasm); llama.cpp maps the file.",
        body: table(["engine", "start", "quantized file", "peak", "peak without pages of files", "over"], rows),
      },
      save,
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Runs `troupe bench` once with an empty cache, so that it quantizes the checkpoint. Returns the engine's table row. */
async function start(engine: string, level: string, folder: string, checkpoint: string): Promise<string[]> {
  const cache = join(folder, `cache-${engine}`);
  const lengths = ["--prompt-len", "32", "--gen-len", "8", "--depth", "4", "--iterations", "1", "--warmup", "0"];
  const args = [
    "bench",
    "-m",
    checkpoint,
    "--isq",
    level,
    "--engine",
    engine,
    "--cpu",
    ...lengths,
    "--max-model-len",
    "256",
  ];
  const begun = performance.now();
  const child = spawn(process.execPath, [troupe, ...args, "--kv-cache", "2048tokens"], {
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, XDG_CACHE_HOME: cache },
  });
  const pids = [child.pid ?? 0];
  const [all, own] = [sampleMemory(pids, residentKiB), sampleMemory(pids, ownKiB)];
  const [code] = await once(child, "exit");
  const [peak, ownPeak] = [all.stop() ?? Number.NaN, own.stop() ?? Number.NaN];
  if (code !== 0) throw new ServerError("internal", `troupe bench ended with code ${code}`);
  const bytes = await sizeIn(join(cache, "troupe", "models", "converted"));
  const over = engine === "wasm" ? ownPeak - bytes / mebi : ownPeak;
  const seconds = `${((performance.now() - begun) / 1000).toFixed(0)} s`;
  return [engine, seconds, ...[bytes / mebi, peak, ownPeak, over].map((value) => value.toFixed(0))];
}

async function sizeIn(folder: string): Promise<number> {
  const sizes = await Promise.all((await readdir(folder)).map(async (name) => (await stat(join(folder, name))).size));
  return sizes.reduce((sum, size) => sum + size, 0);
}
