// Owns the comparison of our whole decode loop with llama.cpp's own C++ one, round by round in turn: `npm run bench --
// engine --peer PATH_OF_LLAMA_BATCHED_BENCH`. The peer samples nothing and makes no text; we do.
import { ServerError } from "../../runtime/errors.ts";
import { output, parseFlags, troupe } from "../command.ts";
import { report } from "../results.ts";
import { median, type Row, table } from "./report.ts";

const depth = 16;
const newTokens = 128;
const sequences = [1, 8, 32];

export async function main(argv: readonly string[]): Promise<void> {
  const { model, rounds, save, peer } = await parseFlags(argv, 3);
  if (peer === null)
    throw new ServerError("config_invalid", "--peer expects the path of llama-batched-bench; got none");
  const ours: Row[][] = [];
  const theirs: number[][] = [];
  for (let round = 0; round < rounds; round++) {
    ours.push(await measureOurs(model));
    theirs.push(await measurePeer(peer, model));
  }
  const row = (index: number) => ours.map((rows) => rows[index] as Row);
  const speeds = (index: number) => row(index).map(({ tokensPerSecond }) => tokensPerSecond);
  const outside = (index: number) => `${(median(row(index).map((r) => r.outsideShare)) * 100).toFixed(2)} %`;
  const rows = sequences.map((count, i) => {
    const [mine, peerSpeed] = [speeds(i), theirs.map((round) => round[i] as number)];
    const ratio = median(mine.map((speed, round) => speed / (peerSpeed[round] as number)));
    return [
      `decode, ${count} at once`,
      median(mine).toFixed(1),
      median(peerSpeed).toFixed(1),
      ratio.toFixed(3),
      outside(i),
    ];
  });
  const [dense, half] = [sequences.length, sequences.length + 1];
  const halfRatio = median(speeds(half).map((speed, round) => speed / (speeds(dense)[round] as number)));
  rows.push(["decode, 16 dense ids", median(speeds(dense)).toFixed(1), "", "", outside(dense)]);
  rows.push([
    "decode, random half of 32 ids",
    median(speeds(half)).toFixed(1),
    "",
    `${halfRatio.toFixed(3)} of dense`,
    outside(half),
  ]);
  report(
    {
      name: "engine",
      title: "Decode tokens/s, everything included, over llama-batched-bench",
      method:
        `${rounds} alternating rounds, medians (of paired ratios); ${depth} tokens in, ${newTokens} out, greedy, 2 threads. ` +
        "Ours goes through scheduler, sampler, frames and detokeniser; the peer's samples nothing. " +
        "The last column is our time outside the engine's forward pass.",
      body: table(["what", "ours", "peer", "ratio", "outside"], rows),
    },
    save,
  );
}

async function measureOurs(model: string): Promise<Row[]> {
  const flags = ["--prompt-len", String(depth), "--gen-len", String(newTokens), "--depth", String(depth)];
  const rounds = ["--iterations", "1", "--warmup", "1", "--threads", "2", "--cpu", "--json"];
  const text = await output(process.execPath, [troupe, "bench", "-m", model, ...flags, ...rounds]);
  const { rows } = JSON.parse(text) as { rows: Row[] };
  return rows.filter(({ kind }) => kind !== "prefill");
}

/** Tokens/s at each number of sequences. */
async function measurePeer(program: string, model: string): Promise<number[]> {
  const context = Math.max(...sequences) * (depth + newTokens);
  const sizes = ["-c", String(context), "-npp", String(depth), "-ntg", String(newTokens), "-npl", sequences.join(",")];
  const text = await output(program, ["-m", model, ...sizes, "-t", "2", "-tb", "2", "--output-format", "jsonl"]);
  const lines = text.split("\n").filter((line) => line.startsWith("{"));
  const speeds = lines.map((line) => (JSON.parse(line) as { speed_tg: number }).speed_tg);
  if (speeds.length === sequences.length) return speeds;
  throw new ServerError("internal", `expected ${sequences.length} lines of JSON from ${program}; got:\n${text}`);
}
