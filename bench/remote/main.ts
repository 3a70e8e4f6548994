// `bench remote`: compares requests to a llama-server through troupe (engine = "remote") with direct requests, in alternating rounds.
import arg from "arg";
import { report } from "../results.ts";
import { measureServers } from "../serving/bench.ts";
import { parseOptions } from "../serving/options.ts";
import { loadTable } from "../serving/report.ts";
import { startPeer, startTroupe } from "../serving/servers.ts";
import { sideFlags, sideOptions, sideUsage } from "../serving/sides.ts";

const defaultRounds = 5;
const contextEach = 1024;
const maxSequences = 32;

export const usage = `npm run bench -- remote [FLAGS]: a llama-server behind troupe, compared with direct use of the same llama-server

  --concurrency 1,8,32 --prompt-tokens 64 --max-tokens 64
${sideUsage}`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    { ...sideFlags, "--concurrency": String, "--prompt-tokens": Number, "--max-tokens": Number },
    { argv: [...argv] },
  );
  const {
    model,
    threads,
    rounds,
    peerProgram,
    peerFlags,
    flags: troupeFlags,
    save,
  } = await sideOptions(flags, defaultRounds);
  const sizes = { model, threads, sequences: maxSequences, context: maxSequences * contextEach };
  // The prompt cache is off. Through troupe and directly, this llama-server gets the same prompts, so a cache would speed up
  // the measurement that comes second.
  const far = await startPeer(peerProgram ?? "llama-server", { ...sizes, flags: ["--no-cache-prompt", ...peerFlags] });
  const near = await startTroupe({ ...sizes, flags: ["--engine", "remote", "--url", far.url, ...troupeFlags] });
  try {
    const load = [
      ...["--concurrency", flags["--concurrency"] ?? "1,8,32", "--rounds", rounds, "--ignore-eos"],
      ...["--prompt-tokens", flags["--prompt-tokens"] ?? 64, "--max-tokens", flags["--max-tokens"] ?? 64],
    ];
    const options = parseOptions(["--url", near.url, "--pid", String(near.pid), "--vs", far.url, ...load.map(String)]);
    const reports = await measureServers(options);
    report(
      {
        name: "remote",
        title: "A model on a llama-server: through troupe, and directly",
        method: `\`npm run bench -- remote\`: ours = troupe with engine = "remote", peer = the same llama-server, both on this machine's cores; ${rounds} rounds, alternating.`,
        body: reports.map((one) => loadTable(one)).join("\n\n"),
      },
      save,
    );
  } finally {
    await near.stop();
    await far.stop();
  }
}
