// `bench remote`: compares requests to a llama-server through troupe (engine = "remote") with direct requests, in alternating rounds.
// With --added, measures the time that troupe adds to the first text of each request.
import arg from "arg";
import { report } from "../results.ts";
import { measureServers } from "../serving/bench.ts";
import { parseOptions } from "../serving/options.ts";
import { loadTable } from "../serving/report.ts";
import { startPeer, startTroupe } from "../serving/servers.ts";
import { sideFlags, sideOptions, sideUsage } from "../serving/sides.ts";
import { addedTable } from "./added.ts";
import { Recorder } from "./recorder.ts";

const defaultRounds = 5;
const contextEach = 1024;
const maxSequences = 32;
/** Requests of each client in a round with --added. */
const requestsEach = 4;

export const usage = `npm run bench -- remote [FLAGS]: a llama-server behind troupe, compared with direct use of the same llama-server

  --concurrency 1,8,32 --prompt-tokens 64 --max-tokens 64
  --added               only the time that troupe adds to the first text of each request
${sideUsage}`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...sideFlags,
      "--concurrency": String,
      "--prompt-tokens": Number,
      "--max-tokens": Number,
      "--added": Boolean,
    },
    { argv: [...argv] },
  );
  const side = await sideOptions(flags, defaultRounds);
  const { model, threads, rounds, save } = side;
  const load = {
    clients: (flags["--concurrency"] ?? "1,8,32").split(",").map(Number),
    promptTokens: flags["--prompt-tokens"] ?? 64,
    maxTokens: flags["--max-tokens"] ?? 64,
  };
  const sizes = { model, threads, sequences: maxSequences, context: maxSequences * contextEach };
  // The prompt cache is off. Through troupe and directly, this llama-server gets the same prompts, so a cache would speed up
  // the measurement that comes second.
  const far = await startPeer(side.peerProgram ?? "llama-server", {
    ...sizes,
    flags: ["--no-cache-prompt", ...side.peerFlags],
  });
  const recorder = flags["--added"] ? await Recorder.open(new URL(far.url)) : null;
  const upstream = recorder?.url.href ?? far.url;
  const near = await startTroupe({ ...sizes, flags: ["--engine", "remote", "--url", upstream, ...side.flags] });
  try {
    if (recorder !== null) {
      const body = await addedTable(new URL(near.url), recorder, { ...load, rounds, requestsEach });
      const method = `\`npm run bench -- remote --added\`: a recorder stands before a llama-server. Added = time from the request to the first text, without the time from the arrival of the whole request at the recorder to the first text there; ${rounds} rounds, alternating, after a warm-up; llama-server has --threads ${threads}; the two servers, the recorder and the clients share this machine's cores.`;
      report(
        { name: "remote-added", title: "What troupe adds to the first text of a llama-server", method, body },
        save,
      );
      return;
    }
    const options = parseOptions([
      ...["--url", near.url, "--pid", String(near.pid), "--vs", far.url],
      ...["--concurrency", load.clients.join(","), "--rounds", String(rounds), "--ignore-eos"],
      ...["--prompt-tokens", String(load.promptTokens), "--max-tokens", String(load.maxTokens)],
    ]);
    const reports = await measureServers(options);
    const method = `\`npm run bench -- remote\`: ours = troupe with engine = "remote", peer = the same llama-server, both on this machine's cores; ${rounds} rounds, alternating.`;
    const body = reports.map((one) => loadTable(one)).join("\n\n");
    report({ name: "remote", title: "A model on a llama-server: through troupe, and directly", method, body }, save);
  } finally {
    await near.stop();
    recorder?.close();
    await far.stop();
  }
}
