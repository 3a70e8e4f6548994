// `bench chaos`: runs random schedules of faults and client requests against real servers, and reports every violated guarantee.
import { appendFileSync, copyFileSync } from "node:fs";
import arg from "arg";
import { table } from "../../cli/bench/report.ts";
import { report } from "../results.ts";
import { ChaosRig, type RigKind } from "./rig/rig.ts";
import { type Outcome, Stage } from "./schedule.ts";

export const usage = `npm run bench -- chaos [FLAGS]: random schedules of faults, and the guarantees that the server violates

  --schedules N   number of schedules (20)
  --seed S        seed of the first schedule; each further schedule adds 1 (random)
  --rig KIND      lmdb (one server) or redis (three replicas); default: half of the schedules on each
  --fault NAME    only this fault; repeatable
  --fresh N       number of schedules after which the servers are replaced by new ones (40)
  --log FILE      append the outcome of each schedule as a JSON line, and copy the servers' logs of broken ones next to FILE
  --save          write bench/results/chaos.md
`;

const shownBroken = 6;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--schedules": Number,
      "--seed": Number,
      "--rig": String,
      "--fault": [String],
      "--fresh": Number,
      "--log": String,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const seed = flags["--seed"] ?? Math.floor(Math.random() * 1e6) * 1000;
  const count = flags["--schedules"] ?? 20;
  const kinds = (flags["--rig"] === undefined ? ["lmdb", "redis"] : [flags["--rig"]]) as RigKind[];
  const outcomes: { kind: RigKind; outcome: Outcome }[] = [];
  for (const [i, kind] of kinds.entries()) {
    const share = Math.ceil((count * (i + 1)) / kinds.length) - Math.ceil((count * i) / kinds.length);
    await runSchedules(
      {
        kind,
        seed: seed + (kinds.length > 1 ? i * 500_000 : 0),
        count: share,
        fresh: flags["--fresh"] ?? 40,
        only: flags["--fault"] ?? null,
      },
      (outcome, logFiles) => {
        outcomes.push({ kind, outcome });
        const line = { kind, ...outcome, outcomes: Object.fromEntries(outcome.outcomes) };
        const log = flags["--log"];
        if (log !== undefined) appendFileSync(log, `${JSON.stringify(line)}\n`);
        if (log !== undefined && outcome.violations.length > 0) {
          for (const [i, file] of logFiles.entries()) copyFileSync(file, `${log}.${kind}-${outcome.seed}-${i}.log`);
        }
        const verdict =
          outcome.violations.length === 0
            ? "ok"
            : `BROKEN\n    ${outcome.violations.slice(0, shownBroken).join("\n    ")}`;
        process.stderr.write(
          `${kind} seed ${outcome.seed}, ${(outcome.ms / 1000).toFixed(1)} s, ${outcome.faults.join("; ") || "no fault"}: ${verdict}\n`,
        );
      },
    );
  }
  report(
    {
      name: "chaos",
      title: "Random schedules of faults",
      method: `Seeds from ${seed} on; \`npm run bench -- chaos --seed SEED --rig KIND --schedules 1\` replays one.`,
      body: summary(outcomes),
    },
    flags["--save"] ?? false,
  );
  if (outcomes.some(({ outcome }) => outcome.violations.length > 0)) process.exitCode = 1;
}

interface Run {
  readonly kind: RigKind;
  readonly seed: number;
  readonly count: number;
  readonly fresh: number;
  readonly only: readonly string[] | null;
}

/** Runs `count` schedules with the seeds `seed`, `seed` + 1, ... */
export async function runSchedules(
  { kind, seed, count, fresh, only }: Run,
  tell: (outcome: Outcome, logFiles: readonly string[]) => void,
): Promise<void> {
  for (let done = 0; done < count; done += fresh) {
    const rig = await ChaosRig.start(kind);
    try {
      const stage = await Stage.prepare(rig);
      const logFiles = rig.servers.map(({ logFile }) => logFile);
      for (let i = done; i < Math.min(count, done + fresh); i++) tell(await stage.run(seed + i, { only }), logFiles);
    } finally {
      await rig.stop();
    }
  }
}

function summary(outcomes: readonly { kind: RigKind; outcome: Outcome }[]): string {
  const kinds = [...new Set(outcomes.map(({ kind }) => kind))];
  return table(
    ["state", "schedules", "broken", "faults", "operations", "seconds"],
    kinds.map((kind) => {
      const own = outcomes.filter((one) => one.kind === kind).map(({ outcome }) => outcome);
      const sum = (value: (outcome: Outcome) => number): string =>
        String(Math.round(own.reduce((total, one) => total + value(one), 0)));
      return [
        kind,
        String(own.length),
        String(own.filter(({ violations }) => violations.length > 0).length),
        sum(({ faults }) => faults.length),
        sum(({ outcomes: counts }) => [...counts.values()].reduce((a, b) => a + b, 0)),
        sum(({ ms }) => ms / 1000),
      ];
    }),
  );
}
