// `bench overload`: behaviour of the server under more load than it can serve. It runs several scenarios, each with thresholds.
import arg from "arg";
import { smallestModel } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { ServerError } from "../../runtime/errors.ts";
import { report } from "../results.ts";
import { burst } from "./burst.ts";
import { fairness } from "./fairness.ts";
import { type Finding, findingsTable } from "./finding.ts";
import { hangups } from "./hangups.ts";
import type { ScenarioOptions } from "./server.ts";
import { stalled } from "./stalled.ts";

const scenarios: Readonly<Record<string, (options: ScenarioOptions) => Promise<Finding[]>>> = {
  burst,
  hangups,
  stalled,
  fairness,
};

export const usage = `npm run bench -- overload [FLAGS]: behaviour of the server under more load than it can serve

  --scenario NAME       repeatable; default: all
  --model ID --threads 0 --rounds 3 --save
`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    { "--scenario": [String], "--model": String, "--threads": Number, "--rounds": Number, "--save": Boolean },
    { argv: [...argv] },
  );
  const names = flags["--scenario"] ?? Object.keys(scenarios);
  const { path } = await resolveModel(flags["--model"] ?? smallestModel);
  const options = { model: path, threads: flags["--threads"] ?? 0, rounds: flags["--rounds"] ?? 3 };
  const tables: string[] = [];
  for (const name of names) {
    const scenario = scenarios[name];
    if (!scenario) {
      const known = Object.keys(scenarios).join(", ");
      throw new ServerError("config_invalid", `expected --scenario to be one of ${known}; got "${name}"`);
    }
    process.stderr.write(`${name}…\n`);
    tables.push(findingsTable(name, await scenario(options)));
  }
  report(
    {
      name: "overload",
      title: "The server under more load than it can take",
      method:
        "`troupe serve` with 32 slots and a cache of 65,536 tokens; clients on raw connections in one other process of the " +
        "same machine. Prompts about 64 tokens, no two alike; answers 32 to 64 tokens, greedy, streamed.",
      body: tables.join("\n\n"),
    },
    flags["--save"] ?? false,
  );
}
