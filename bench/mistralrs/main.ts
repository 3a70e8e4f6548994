// `bench mistralrs`: compares troupe with mistral.rs on the same model file, in alternating rounds.
import arg from "arg";
import { ServerError } from "../../runtime/errors.ts";
import { report } from "../results.ts";
import { measureServers } from "../serving/bench.ts";
import { parseOptions } from "../serving/options.ts";
import { loadTable } from "../serving/report.ts";
import { startMistralRs, startTroupe } from "../serving/servers.ts";
import { sideFlags, sideOptions, sideUsage } from "../serving/sides.ts";

const defaultRounds = 3;
const contextEach = 1024;
const maxSequences = 32;

export const usage = `npm run bench -- mistralrs [FLAGS]: troupe compared with mistral.rs, on the CPU

  --python PROGRAM      Python with the package mistralrs, in a separate environment:
                        python3 -m venv DIR && DIR/bin/pip install mistralrs==0.9.5
  --concurrency 1,8,32 --prompt-tokens 64 --max-tokens 64 --requests N
${sideUsage}`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...sideFlags,
      ...{ "--python": String, "--concurrency": String, "--requests": Number },
      ...{ "--prompt-tokens": Number, "--max-tokens": Number },
    },
    { argv: [...argv] },
  );
  const python = flags["--python"];
  if (python === undefined) {
    throw new ServerError("config_invalid", "--python is missing: expected a Python that has the package mistralrs");
  }
  const { model, threads, rounds, flags: troupeFlags, save } = await sideOptions(flags, defaultRounds);
  const sizes = { model, threads, sequences: maxSequences, context: maxSequences * contextEach };
  const ours = await startTroupe({ ...sizes, flags: troupeFlags });
  try {
    const peer = await startMistralRs(python, sizes);
    try {
      const { "--requests": requests } = flags;
      const load = [
        ...["--concurrency", flags["--concurrency"] ?? "1,8,32", "--rounds", rounds, "--ignore-eos"],
        ...["--prompt-tokens", flags["--prompt-tokens"] ?? 64, "--max-tokens", flags["--max-tokens"] ?? 64],
        ...(requests === undefined ? [] : ["--requests", requests]),
      ].map(String);
      const servers = ["--url", ours.url, "--pid", ours.pid, "--vs", peer.url, "--vs-pid", peer.pid].map(String);
      const reports = await measureServers(parseOptions([...servers, ...load]));
      report(
        {
          name: "mistralrs",
          title: "Serving, beside mistral.rs",
          method:
            `\`npm run bench -- mistralrs\`: ours = troupe, peer = mistral.rs from its Python package, whose engine is called by a small ` +
            `HTTP server (bench/mistralrs/serve.py); the same model file, ${threads} threads each, on the CPU; ${rounds} rounds, alternating.`,
          body: reports.map((one) => loadTable(one)).join("\n\n"),
        },
        save,
      );
    } finally {
      await peer.stop();
    }
  } finally {
    await ours.stop();
  }
}
