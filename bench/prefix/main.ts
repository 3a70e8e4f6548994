// `bench prefix`: savings by the prefix cache, in several scenarios, each with thresholds.
import arg from "arg";
import { ServerError } from "../../runtime/errors.ts";
import { report } from "../results.ts";
import { type SideOptions, sideFlags, sideOptions, sideUsage } from "../serving/sides.ts";
import { agents } from "./agents.ts";
import { chat } from "./chat.ts";
import { repeated } from "./repeated.ts";
import { restart } from "./restart.ts";

/** Scenarios by name. Each returns its tables. */
const scenarios: Readonly<Record<string, (options: SideOptions) => Promise<string>>> = {
  chat,
  agents,
  repeated,
  restart,
};

export const usage = `npm run bench -- prefix [FLAGS]: savings by the prefix cache, in several scenarios

  --scenario NAME       repeatable; default: all
${sideUsage}`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg({ ...sideFlags, "--scenario": [String] }, { argv: [...argv] });
  const options = await sideOptions(flags, 3);
  const tables: string[] = [];
  for (const name of flags["--scenario"] ?? Object.keys(scenarios)) {
    const scenario = scenarios[name];
    if (!scenario) {
      const known = Object.keys(scenarios).join(", ");
      throw new ServerError("config_invalid", `expected --scenario to be one of ${known}; got "${name}"`);
    }
    tables.push(await scenario(options));
  }
  report(
    {
      name: "prefix",
      title: "What prompts that begin alike cost",
      method:
        `Rounds: ${options.rounds}, the sides in turn, every round with prompts of its own; medians (of paired ratios) and each ` +
        `round. Greedy, ${options.threads} threads, clients on the same cores. Computed: tokens of a prompt less those its ` +
        "usage calls cached. New: tokens of a turn's prompt less the prompt and the answer of the turn before. Time to first " +
        `token is p50. The peer is llama-server with its own caches on.${options.flags.map((flag) => ` ${flag}`).join("")}`,
      body: tables.join("\n\n"),
    },
    options.save,
  );
}
