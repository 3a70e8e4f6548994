// `bench quantize`: speed of our block encoders in MB of F32 per second for every type, compared with llama.cpp's ggml_quantize_chunk
// on the same number of threads.
import arg from "arg";
import { median, table } from "../../cli/bench/report.ts";
import { tensorTypes } from "../../engines/files/gguf/tensors.ts";
import { encodableTypes } from "../../engines/quantization/codec/codec-types.ts";
import { ServerError } from "../../runtime/errors.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import { report } from "../results.ts";
import { compareFiles } from "./files.ts";
import { compareMemory } from "./memory.ts";
import { comparePerplexity } from "./perplexity.ts";
import { type QuantizeBenchInit, type QuantizeBenchReady, quantizeBenchModule, type Rates } from "./place.ts";

const placeTimeoutMs = 600_000;
const mega = 1e6;
const f32 = 0;

export const usage = `npm run bench -- quantize [FLAGS]: speed of our block encoders compared with llama.cpp's, in MB of F32 per second

  --types Q4_0,Q4_K,... number types; default: all
  --threads 1,2         numbers of threads that encode at the same time, each its own rows
  --shape 512,4096      rows and columns that a thread encodes at once
  --importance no,yes   without and with an importance of the columns
  --rounds 5 --ms 100   number of rounds, and duration of each measurement in ms
  --files               measure whole files instead, compared with llama.cpp's quantizer
  --memory LEVEL        measure the peak memory of loading 1.5 GB of safetensors at this quantization level instead
  --perplexity          measure the perplexity of the default model instead, compared with llama.cpp's quantizer;
                        with --importance yes, using the importance matrix of a text
  --text yauzl,lmdb     npm packages whose READMEs are the texts for --perplexity; default: yauzl
  --save
`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...{ "--types": String, "--threads": String, "--shape": String, "--importance": String },
      ...{
        "--rounds": Number,
        "--ms": Number,
        "--files": Boolean,
        "--memory": String,
        "--perplexity": Boolean,
        "--text": String,
        "--save": Boolean,
      },
    },
    { argv: [...argv] },
  );
  if (flags["--files"]) return await compareFiles(flags["--rounds"] ?? 5, flags["--save"] ?? false);
  if (flags["--memory"] !== undefined) return await compareMemory(flags["--memory"], flags["--save"] ?? false);
  if (flags["--perplexity"]) {
    const types = flags["--types"]?.split(",") ?? null;
    return await comparePerplexity(
      types,
      flags["--importance"] === "yes",
      (flags["--text"] ?? "yauzl").split(","),
      flags["--save"] ?? false,
    );
  }
  const [rows = 512, columns = 4096] = (flags["--shape"] ?? "512,4096").split(",").map(Number);
  const types = flags["--types"]?.split(",").map(numberOf) ?? [...encodableTypes].filter((type) => type !== f32);
  const plan = { types, rows, columns, rounds: flags["--rounds"] ?? 5, millisecondsEach: flags["--ms"] ?? 100 };
  const lines: string[][] = [];
  for (const threads of (flags["--threads"] ?? "1,2").split(",").map(Number)) {
    for (const importance of (flags["--importance"] ?? "no,yes").split(",")) {
      process.stderr.write(`${threads} threads, importance: ${importance} ...\n`);
      lines.push(...(await measure({ ...plan, hasImportance: importance === "yes" }, threads)));
    }
  }
  report(
    {
      name: `quantize-node${process.versions.node.split(".")[0]}`,
      title: "Block encoders over ggml_quantize_chunk of llama.cpp",
      method:
        `Each thread encodes ${rows} rows of ${columns} normally distributed values in turn with both. MB of F32 per second, ` +
        `all threads together, medians of ${plan.rounds} rounds of ${plan.millisecondsEach} ms. Ours includes the copies to ` +
        "and from the memory of the kernels and the check for values that are not finite.",
      body: table(["type", "importance", "threads", "ours", "llama.cpp", "ours over llama.cpp"], lines),
    },
    flags["--save"] ?? false,
  );
}

async function measure(plan: Omit<QuantizeBenchInit, "threads" | "meeting">, threads: number): Promise<string[][]> {
  const init: QuantizeBenchInit = { ...plan, threads, meeting: new SharedArrayBuffer(8) };
  const places = await Promise.all(
    Array.from({ length: threads }, (_, i) =>
      spawnPlace<QuantizeBenchInit, QuantizeBenchReady>({
        name: `quantize ${i}`,
        module: quantizeBenchModule,
        init,
        kind: "thread",
        startTimeoutMs: placeTimeoutMs,
      }),
    ),
  );
  await Promise.all(places.map((place) => place.stop(1000)));
  return plan.types.map((type, i) => {
    const rounds = Array.from({ length: plan.rounds }, (_, round) =>
      addUp(places.map(({ ready }) => ready[i]?.[round] as Rates)),
    );
    const [ours, theirs] = [median(rounds.map((one) => one.ours)), median(rounds.map((one) => one.theirs))];
    const ratio = median(rounds.map((one) => one.ours / one.theirs));
    const name = tensorTypes.get(type)?.name ?? String(type);
    const rates = [(ours / mega).toFixed(0), (theirs / mega).toFixed(0), ratio.toFixed(2)];
    return [name, plan.hasImportance ? "yes" : "no", String(threads), ...rates];
  });
}

function addUp(threads: readonly Rates[]): Rates {
  return threads.reduce((sum, one) => ({ ours: sum.ours + one.ours, theirs: sum.theirs + one.theirs }));
}

function numberOf(name: string): number {
  for (const [number, type] of tensorTypes) if (type.name === name && encodableTypes.has(number)) return number;
  throw new ServerError("config_invalid", `--types expects names of types with an encoder; got "${name}"`);
}
