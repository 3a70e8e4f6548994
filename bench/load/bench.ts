// `bench load`: load time of each engine from a file in the page cache, and memory of the model in addition to its weights.
// Measured on a small model and on a generated one of more than a gigabyte.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import arg from "arg";
import { median, table } from "../../cli/bench/report.ts";
import type { EngineName } from "../../engines/engine.ts";
import { readTensorTable } from "../../engines/files/gguf/tensors.ts";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { ServerError } from "../../runtime/errors.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import { specOf } from "../../test/fixtures/models/models.ts";
import { report } from "../results.ts";
import { type LoadInit, type LoadReady, loadModule } from "./load-place.ts";
import { type RandomShape, writeRandomModel } from "./random-model.ts";

interface Subject {
  readonly engine: EngineName;
  readonly mmap: boolean;
}

/** Ways to load a model. The first way is the baseline of the comparison. A mapped file is neither read nor copied before it is used. */
const subjects: Readonly<Record<string, Subject>> = {
  llama: { engine: "llama", mmap: true },
  "llama-read": { engine: "llama", mmap: false },
  wasm: { engine: "wasm", mmap: false },
};

const placeTimeoutMs = 300_000;
const contextTokens = 256;
const kvElementBytes = 2;
const mebibyte = 1024 * 1024;

/** Shape of a model of 1.55 GB. */
const bigShape: RandomShape = {
  layers: 28,
  width: 1536,
  feedForward: 8960,
  heads: 12,
  kvHeads: 2,
  vocabSize: 49_152,
};

export const usage = `npm run bench -- load [FLAGS]: time and memory needed to load a model

  --subjects A[,B]      llama, llama-read (without mmap), wasm; default: all
  --big                 also measure a generated model of more than a gigabyte
  --model ID --threads 2 --rounds 5 --save
`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--model": String,
      "--subjects": String,
      "--rounds": Number,
      "--threads": Number,
      "--big": Boolean,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const chosen = flags["--subjects"]?.split(",") ?? Object.keys(subjects);
  const rounds = flags["--rounds"] ?? 5;
  const threads = flags["--threads"] ?? 2;
  const { path } = await resolveModel(flags["--model"] ?? defaultPackage);
  const lines = await measure(path, chosen, rounds, threads);
  if (flags["--big"]) lines.push(...(await withBigModel((big) => measure(big, chosen, rounds, threads))));
  report(
    {
      name: "load",
      title: "Load time and memory of a model",
      method:
        `A process of its own for each of ${rounds} alternating rounds, medians (of paired ratios). Load: from the engine being ` +
        "to the first token having been computed, the file in the page cache. Beside the weights: what the process's resident " +
        `memory has grown by once ${contextTokens} tokens have been computed, less their KV (16-bit), over the bytes of the ` +
        "tensors; with llama.cpp this counts the mapped file as far as it is resident. llama-read is llama.cpp without mapping.",
      body: table(
        ["model", "subject", "node", "tensors MiB", "load ms", "over the first", "added MiB", "over tensors"],
        lines,
      ),
    },
    flags["--save"] ?? false,
  );
}

async function withBigModel(work: (path: string) => Promise<string[][]>): Promise<string[][]> {
  const folder = mkdtempSync(join(tmpdir(), "troupe-load-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "random.Q8_0.gguf");
  process.stderr.write(`writing ${path} ...\n`);
  await writeRandomModel(path, bigShape);
  return await work(path);
}

async function measure(path: string, chosen: readonly string[], rounds: number, threads: number): Promise<string[][]> {
  const kvBytes = contextTokens * (await kvBytesPerToken(path));
  const loads: LoadReady[][] = chosen.map(() => []);
  // Round 0 only brings the file into the page cache.
  for (let round = 0; round <= rounds; round++) {
    for (const [i, name] of chosen.entries()) {
      process.stderr.write(`${basename(path)}, ${name}, round ${round} of ${rounds}\n`);
      const ready = await loadOnce(name, path, threads);
      if (round > 0) loads[i]?.push(ready);
    }
  }
  const [reference = []] = loads;
  return chosen.map((name, i) => {
    const own = loads[i] ?? [];
    const [tensorBytes = Number.NaN] = own.map((load) => load.tensorBytes);
    const addedBytes = median(own.map((load) => load.addedBytes)) - kvBytes;
    const ratio = median(own.map(({ loadMs }, round) => loadMs / (reference[round]?.loadMs ?? Number.NaN)));
    return [
      basename(path),
      name,
      process.versions.node,
      (tensorBytes / mebibyte).toFixed(0),
      median(own.map(({ loadMs }) => loadMs)).toFixed(0),
      ratio.toFixed(2),
      (addedBytes / mebibyte).toFixed(0),
      (addedBytes / tensorBytes).toFixed(3),
    ];
  });
}

async function loadOnce(name: string, path: string, threads: number): Promise<LoadReady> {
  const subject = subjects[name];
  if (!subject) {
    const known = Object.keys(subjects).join(", ");
    throw new ServerError("config_invalid", `--subjects expects some of ${known}; got "${name}"`);
  }
  const { engine, mmap } = subject;
  const spec = specOf(path, { maxSequences: 1, maxModelLength: contextTokens, kvType: "f16", threads, mmap });
  const place = await spawnPlace<LoadInit, LoadReady>({
    name: "load",
    module: loadModule,
    init: { engine, spec },
    kind: "process",
    startTimeoutMs: placeTimeoutMs,
  });
  await place.stop(10_000);
  return place.ready;
}

async function kvBytesPerToken(path: string): Promise<number> {
  const { fields } = await readTensorTable(path);
  const count = (key: string) => Number(fields.get(`llama.${key}`));
  const headLength = count("embedding_length") / count("attention.head_count");
  return count("block_count") * count("attention.head_count_kv") * headLength * 2 * kvElementBytes;
}
