// Comparison of troupe's decode loop with llama.cpp's C++ programs, in alternating rounds. The C++ programs neither sample nor
// detokenize; troupe does both.
import arg from "arg";
import { median, type Row, table } from "../../cli/bench/report.ts";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { engineName, output, troupe } from "../command.ts";
import { report } from "../results.ts";
import { decodeKey, measurePeer, prefillKey, type Sizes, type Speeds } from "./peers.ts";

const shape = { promptTokens: 512, depth: 16, newTokens: 64 };
const sequences = [1, 8, 32];
const halfKind = "decode, random half of the ids";

/** One run of `troupe bench`. */
interface OurRound {
  readonly node: string;
  readonly engine: string;
  readonly model: string;
  readonly rows: readonly Row[];
}

export const usage = `npm run bench -- engine [FLAGS]: tokens/s of prefill and decode, compared with llama.cpp's own programs

  --engine llama        wasm or llama
  --peer PROGRAM        llama-bench or llama-batched-bench; repeatable
  --node PROGRAM        Node.js to run on; repeatable; default: this one
  --gpu                 on the GPU, both sides
  --model ID --threads 2 --rounds 3 --save
`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--model": String,
      "--engine": String,
      "--threads": Number,
      "--rounds": Number,
      "--peer": [String],
      "--node": [String],
      "--gpu": Boolean,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const { path } = await resolveModel(flags["--model"] ?? defaultPackage);
  const engine = engineName(flags["--engine"] ?? "llama");
  const roundCount = flags["--rounds"] ?? 3;
  const nodes = flags["--node"] ?? [process.execPath];
  const gpu = flags["--gpu"] ?? false;
  const sizes: Sizes = { ...shape, model: path, threads: flags["--threads"] ?? 2, sequences, gpu };
  const ours: OurRound[][] = nodes.map(() => []);
  const peers: Speeds[] = [];
  for (let round = 0; round < roundCount; round++) {
    for (const [i, node] of nodes.entries()) ours[i]?.push(await measureOurs(node, engine, sizes));
    peers.push(await measurePeers(flags["--peer"] ?? [], sizes));
  }
  const [first] = ours.flat();
  report(
    {
      name: gpu ? "gpu" : engine === "llama" ? "engine" : `engine-${engine}`,
      title: `Tokens/s of the ${engine} engine, everything included, over llama.cpp's own programs`,
      method:
        `${first?.model}, ${first?.engine}, ${sizes.threads} threads. ${roundCount} alternating rounds, medians (of paired ratios). ` +
        `Prefill: ${shape.promptTokens} tokens of one sequence; decode: ${shape.depth} tokens in, ${shape.newTokens} out, ` +
        "greedy. Ours goes through scheduler, sampler, frames and detokeniser; llama-bench (from an empty context) and " +
        "llama-batched-bench sample nothing. The last column is our time outside the engine's forward pass.",
      body: table(
        ["what", "node", "ours", "peer", "ratio", "outside"],
        ours.flatMap((rounds) => linesOf(rounds, peers)),
      ),
    },
    flags["--save"] ?? false,
  );
}

/** Runs the programs. If two programs report the same measure, the result of the first one is used. */
async function measurePeers(programs: readonly string[], sizes: Sizes): Promise<Speeds> {
  const speeds = new Map<string, number>();
  for (const program of programs) {
    for (const [key, speed] of await measurePeer(program, sizes)) if (!speeds.has(key)) speeds.set(key, speed);
  }
  return speeds;
}

async function measureOurs(node: string, engine: string, sizes: Sizes): Promise<OurRound> {
  const { model, threads, promptTokens, newTokens, depth, gpu } = sizes;
  const lengths = ["--prompt-len", String(promptTokens), "--gen-len", String(newTokens), "--depth", String(depth)];
  const rounds = [
    "--iterations",
    "1",
    "--warmup",
    "1",
    "--threads",
    String(threads),
    ...(gpu ? [] : ["--cpu"]),
    "--json",
  ];
  const text = await output(node, [troupe, "bench", "-m", model, "--engine", engine, ...lengths, ...rounds]);
  const {
    machine,
    model: card,
    rows,
  } = JSON.parse(text) as {
    machine: { node: string };
    model: { description: string; engine: string };
    rows: Row[];
  };
  return { node: machine.node, engine: card.engine, model: card.description, rows };
}

/** Returns the table rows for one version of Node. */
function linesOf(rounds: readonly OurRound[], peers: readonly Speeds[]): string[][] {
  const [first] = rounds;
  if (!first) return [];
  const speedsAt = (index: number) => rounds.map(({ rows }) => rows[index]?.tokensPerSecond ?? Number.NaN);
  const half = Math.max(...first.rows.map((row) => (row.kind === halfKind ? row.sequences : 0)));
  const dense = speedsAt(first.rows.findIndex((row) => row.kind === "decode" && row.sequences === half));
  return first.rows.map((row, i) => {
    const isPrefill = row.kind === "prefill";
    const speeds = speedsAt(i);
    const peer = peers.flatMap((round) => round.get(isPrefill ? prefillKey : decodeKey(row.sequences)) ?? []);
    const outside = rounds.map(({ rows }) => rows[i]?.outsideShare ?? Number.NaN);
    const compared = peer.length > 0 ? medianRatio(speeds, peer).toFixed(3) : "";
    return [
      isPrefill ? `prefill, ${row.promptLength} tokens` : `${row.kind}, ${row.sequences} at once`,
      first.node,
      median(speeds).toFixed(1),
      peer.length > 0 ? median(peer).toFixed(1) : "",
      row.kind === halfKind ? `${medianRatio(speeds, dense).toFixed(3)} of dense` : compared,
      `${(median(outside) * 100).toFixed(2)} %`,
    ];
  });
}

/**
 * Computes the speed ratio of each round and returns the median. In each round, the two speeds are measured one
 * directly after the other.
 */
function medianRatio(ours: readonly number[], theirs: readonly number[]): number {
  return median(ours.map((speed, round) => speed / (theirs[round] ?? Number.NaN)));
}
