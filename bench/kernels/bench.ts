// Kernel benchmark (`bench kernels`): compares the wasm engine's matrix kernels with the machine's memory read rate and with
// the peak rate of the dot instruction. Loops that do nothing else measure both limits in the same run.
import arg from "arg";
import { median, table } from "../../cli/bench/report.ts";
import { tensorTypes } from "../../engines/files/gguf/tensors.ts";
import { type KernelModule, loadKernels } from "../../engines/wasm/load/kernel-module.ts";
import { ServerError } from "../../runtime/errors.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import { report } from "../results.ts";
import { type KernelBenchInit, type KernelBenchReady, kernelBenchModule, type Round } from "./place.ts";

const workingBytes = 160e6;
const giga = 1e9;
const placeTimeoutMs = 600_000;
/**
 * Types of weights whose products use floats instead of 8-bit integers. The peak of the dot instruction does not apply
 * to them.
 */
const floatTypes = ["F16", "BF16", "F32"];

interface Plan extends Pick<KernelBenchInit, "counts" | "shape" | "rounds" | "millisecondsEach"> {
  readonly types: readonly string[];
}

export const usage = `npm run bench -- kernels [FLAGS]: matrix kernels of the wasm engine, relative to memory and dot product peaks

  --types Q8_0,Q4_0,... number types; default: all
  --rows 1,4,8,32,256   numbers of activation rows
  --shape 2048,2048     rows and columns of the weights
  --variants relaxed,plain kernels with relaxed or plain SIMD
  --threads N[,N]       numbers of compute threads
  --rounds 5 --ms 50    number of rounds, and duration of each measurement in ms
  --save
`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--types": String,
      "--rows": String,
      "--shape": String,
      "--variants": String,
      "--threads": String,
      "--rounds": Number,
      "--ms": Number,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const list = (text: string | undefined, otherwise: string) => (text ?? otherwise).split(",");
  const [rows = 2048, k = 2048] = list(flags["--shape"], "2048,2048").map(Number);
  const plan: Plan = {
    types: list(flags["--types"], "Q8_0,Q4_0,Q4_1,Q5_0,Q5_1,IQ4_NL,MXFP4,Q2_K,Q3_K,Q4_K,Q5_K,Q6_K,IQ4_XS,F16,BF16,F32"),
    counts: list(flags["--rows"], "1,4,8,32,256").map(Number),
    shape: { rows, k },
    rounds: flags["--rounds"] ?? 5,
    millisecondsEach: flags["--ms"] ?? 50,
  };
  const lines: string[][] = [];
  for (const variant of list(flags["--variants"], "relaxed,plain")) {
    const kernels = await loadVariant(variant);
    for (const threads of list(flags["--threads"], "1,2").map(Number)) {
      process.stderr.write(`${variant}, ${threads} threads ...\n`);
      lines.push(...(await measure(plan, kernels, threads)));
    }
  }
  report(
    {
      name: "kernels",
      title: "The matrix kernels over what the machine reads and what the dot instruction does",
      method:
        `Matrices of ${rows} rows of ${k}, ${workingBytes / 1e6} MB of them a thread, read in turn; medians of ${plan.rounds} rounds ` +
        `of ${plan.millisecondsEach} ms, shares of what the same round read (probeReadAll) and multiplied (probeDot). Threads ` +
        "measure the same kernel at the same time, and are added up. Activations are prepared beforehand.",
      body: table(
        ["variant", "node", "threads", "type", "vectors", "GB/s", "of reading", "GMAC/s", "of the dot peak"],
        lines,
      ),
    },
    flags["--save"] ?? false,
  );
}

/** Loads a kernel variant. The engine selects the variant by this environment variable. */
async function loadVariant(variant: string): Promise<KernelModule> {
  process.env.TROUPE_WASM_KERNELS = variant;
  return await loadKernels();
}

async function measure(plan: Plan, kernels: KernelModule, threads: number): Promise<string[][]> {
  const types = plan.types.map(numberOf);
  const meeting = new SharedArrayBuffer(8);
  const init: KernelBenchInit = { ...plan, types, kernels, workingBytes, threads, meeting };
  const places = await Promise.all(
    Array.from({ length: threads }, (_, i) =>
      spawnPlace<KernelBenchInit, KernelBenchReady>({
        name: `kernels ${i}`,
        module: kernelBenchModule,
        init,
        kind: "thread",
        startTimeoutMs: placeTimeoutMs,
      }),
    ),
  );
  await Promise.all(places.map((place) => place.stop(1000)));
  const label = [`${kernels.variant}${kernels.wideDot ? ", 8-bit dot" : ""}`, process.versions.node, String(threads)];
  return plan.types.flatMap((type, i) => {
    const rounds = Array.from({ length: plan.rounds }, (_, round) =>
      addUp(places.map(({ ready }) => ready[i]?.[round] as Round)),
    );
    return linesOf(plan, type, rounds).map((line) => [...label, ...line]);
  });
}

function addUp(threads: readonly Round[]): Round {
  return threads.reduce((sum, one) => ({
    readBytes: sum.readBytes + one.readBytes,
    dotProducts: sum.dotProducts + one.dotProducts,
    kernels: sum.kernels.map(({ bytes, products }, i) => ({
      bytes: bytes + (one.kernels[i]?.bytes ?? Number.NaN),
      products: products + (one.kernels[i]?.products ?? Number.NaN),
    })),
  }));
}

function linesOf({ counts }: Plan, type: string, rounds: readonly Round[]): string[][] {
  const isDot = !floatTypes.includes(type);
  const of = (pick: (round: Round) => number) => median(rounds.map(pick));
  const peaks = [of((round) => round.readBytes), of((round) => round.dotProducts)].map((peak) =>
    (peak / giga).toFixed(1),
  );
  const [read = "", dot = ""] = peaks;
  const lines = counts.map((count, i) => {
    const kernel = ({ kernels }: Round) => kernels[i] ?? { bytes: Number.NaN, products: Number.NaN };
    return [
      type,
      String(count),
      (of((round) => kernel(round).bytes) / giga).toFixed(1),
      percent(of((round) => kernel(round).bytes / round.readBytes)),
      (of((round) => kernel(round).products) / giga).toFixed(1),
      isDot ? percent(of((round) => kernel(round).products / round.dotProducts)) : "",
    ];
  });
  return [[type, "peak", read, "", isDot ? dot : "", ""], ...lines];
}

function percent(share: number): string {
  return `${(share * 100).toFixed(0)} %`;
}

function numberOf(name: string): number {
  for (const [number, type] of tensorTypes) if (type.name === name) return number;
  throw new ServerError("config_invalid", `--types expects names of GGUF types; got "${name}"`);
}
