// `bench hostile`: measures what hostile clients and faults cost the other clients. Each probe attacks a separate server while
// a bystander, a well-behaved client, uses it. --random and --faults are long runs that replace the probes.
import { execFileSync } from "node:child_process";
import { ServerError } from "../../runtime/errors.ts";
import { report } from "../results.ts";
import { runFaults } from "./fault-rounds.ts";
import { bars, measure } from "./measure.ts";
import { type HostileOptions, parseOptions } from "./options.ts";
import type { Probe } from "./probe.ts";
import { probes } from "./probes/all.ts";
import { runRandom } from "./rig/random-load.ts";
import { cells, hostileTable, type Line } from "./table.ts";

export { usage } from "./options.ts";

const quietMs = 3000;
const restMs = 10_000;
/** Maximum duration of any attack. Each probe also has a shorter limit. */
const longestMs = 600_000;

export async function main(argv: readonly string[]): Promise<void> {
  const options = await parseOptions(argv);
  const heap = options.heapMiB === null ? "" : `-heap-${options.heapMiB}`;
  const suffix = options.server === null ? heap : `${heap}-before`;
  const { random, faults } = options;
  if (random !== null) publish(`hostile-random${suffix}`, options, await runRandom(options, random));
  else if (faults !== null) publish(`hostile-faults${suffix}`, options, await runFaults(options, faults));
  else publish(`hostile${suffix}`, options, hostileTable(await runProbes(options)));
}

async function runProbes(options: HostileOptions): Promise<readonly Line[]> {
  const lines: Line[] = [];
  for (const probe of chosen(options.probes)) {
    const obstacle = probe.obstacle?.() ?? null;
    if (obstacle !== null) {
      process.stderr.write(`SKIPPED: ${probe.name}: ${obstacle}\n`);
      continue;
    }
    for (const { edge, engine } of placesOf(probe, options)) {
      const { model, directory, nodeFlags } = options;
      process.stderr.write(`${probe.finding} ${probe.name} (${edge}, ${engine})…\n`);
      const times = { quietMs, restMs, longestMs };
      const measured = await measure(probe, { model, directory, nodeFlags, edge, engine, bars, ...times });
      const line = { probe, edge, engine, measured };
      process.stderr.write(`  ${cells(line).slice(2).join(" | ")}\n`);
      lines.push(line);
    }
  }
  return lines;
}

function chosen(names: readonly string[] | null): readonly Probe[] {
  if (names === null) return probes;
  const found = probes.filter(({ name }) => names.some((part) => name.toLowerCase().includes(part.toLowerCase())));
  if (found.length > 0) return found;
  const known = probes.map(({ name }) => `"${name}"`).join(", ");
  throw new ServerError("config_invalid", `--probe expects part of one of ${known}; got "${names.join('", "')}"`);
}

function placesOf(probe: Probe, { edges, engines, all }: HostileOptions) {
  const concerned = (what: "edge" | "engine") => all || probe.concerns.includes(what);
  const fitEdges = edges.filter((edge) => probe.edges?.includes(edge) ?? true);
  const fitEngines = engines.filter((engine) => probe.engines?.includes(engine) ?? true);
  return (concerned("edge") ? fitEdges : fitEdges.slice(0, 1)).flatMap((edge) =>
    (concerned("engine") ? fitEngines : fitEngines.slice(0, 1)).map((engine) => ({ edge, engine })),
  );
}

function publish(name: string, options: HostileOptions, body: string): void {
  const commit = execFileSync("git", ["-C", options.directory, "rev-parse", "--short", "HEAD"], { encoding: "utf8" });
  const heap = options.nodeFlags.length === 0 ? "" : ` Node flags: ${options.nodeFlags.join(" ")}.`;
  report(
    {
      name,
      title: "Hostile clients and faults, and what they cost everybody else",
      method:
        `Server of commit ${commit.trim()}.${heap} Each attack on a server of its own, beside a bystander in a process of its ` +
        `own with another API key: a streamed chat every 200 ms, /health every 20 ms. A warm-up of 17 ordinary requests, ` +
        `${quietMs / 1000} s of quiet, the attack, ` +
        `up to ${restMs / 1000} s of rest. Held: the attacker gets an answer or a named error; front delay <= ${bars.frontMs} ms; ` +
        `first token <= ${bars.firstTokenFactor} x quiet + ${bars.firstTokenMs} ms; no request of the bystander fails; memory back ` +
        `within ${Math.round((bars.memoryFactor - 1) * 100)} %, counted without pages of files. All on the same cores.`,
      body,
    },
    options.save,
  );
}
