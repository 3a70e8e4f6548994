// Scenario `fairness`: one client has a long backlog, another sends occasional requests. The second client must wait only for
// the next free slot, not for the backlog. For comparison, both clients also use the same key, which gives the waits of first
// come, first served.
import { setTimeout as pause } from "node:timers/promises";
import { median } from "../../cli/bench/report.ts";
import { mean } from "../serving/client/statistics.ts";
import { type Answer, ask } from "./client.ts";
import { atMost, exactly, type Finding, silence, told } from "./finding.ts";
import { type ScenarioOptions, type Server, withServer } from "./server.ts";
import { askInTurns, countOf, msUntil, slots, Workload } from "./workload.ts";

const backlog = 200;
const busy = "key-of-the-busy-client";
const other = "key-of-the-other-client";
/** Tokens of the second client's requests. They are short because only their first token is measured. */
const probeTokens = 4;
const probes = 12;

export function fairness(options: ScenarioOptions): Promise<Finding[]> {
  return withServer(options, [], askBesideBacklog);
}

async function askBesideBacklog(server: Server): Promise<Finding[]> {
  const load = new Workload(5);
  await askInTurns(server.port, load.questions(2 * slots), slots);
  const firstCome = await besideBacklog(server, load, busy, 1);
  const fair = await besideBacklog(server, load, other, probes);
  const waits = fair.probes.map(timeToFirstText);
  const limitMs = fair.releaseMs + 2 * fair.stepMs;
  const firstComeMs = mean(firstCome.probes.map(timeToFirstText));
  const answers = [...firstCome.backlog, ...firstCome.probes, ...fair.backlog, ...fair.probes];
  return [
    told("mean time between freed slots", `${fair.releaseMs.toFixed(0)} ms`),
    told("mean step", `${fair.stepMs.toFixed(0)} ms`),
    told(
      `time to first token, first and worst of ${waits.length}`,
      `${waits[0]?.toFixed(0)}, ${Math.max(...waits).toFixed(0)} ms`,
    ),
    atMost("time to first token, mean", mean(waits), limitMs, " ms", 0),
    told("time to first token with the busy client's key", `${firstComeMs.toFixed(0)} ms`),
    atMost("mean over that", mean(waits) / firstComeMs, 0.1),
    exactly("answered in full", countOf(answers, "done"), answers.length),
    silence("warned of", server.complaints()),
  ];
}

interface Beside {
  readonly backlog: readonly Answer[];
  readonly probes: readonly Answer[];
  /** Mean time between the ends of two successive backlog responses while all slots were in use. */
  readonly releaseMs: number;
  readonly stepMs: number;
}

/** Sends requests with this key, one after another, while the server works off the busy client's backlog. */
async function besideBacklog(server: Server, load: Workload, key: string, count: number): Promise<Beside> {
  const ended: number[] = [];
  const pending = load.questions(backlog).map(async (question) => {
    const answer = await ask(server.port, question, { key: busy });
    ended.push(answer.endMs);
    return answer;
  });
  // The server has accepted the whole backlog when the first slot is freed. Later slots become free one by one.
  await msUntil(() => ended.length > 0, 60_000);
  const asked: Answer[] = [];
  for (const question of load.questions(count)) {
    // Stops if the rest of the backlog fits into the slots, because then no request waits any more.
    if (backlog - ended.length <= slots) break;
    asked.push(await ask(server.port, { ...question, maxTokens: probeTokens }, { key }));
    await pause(load.below(200));
  }
  const answers = await Promise.all(pending);
  return { backlog: answers, probes: asked, releaseMs: meanRelease(ended), stepMs: median(answers.map(stepOf)) };
}

/**
 * Returns the mean time between the ends of two successive responses. Ignores the last ends, when no request waited for a slot.
 */
function meanRelease(ended: readonly number[]): number {
  const saturated = ended.slice(0, ended.length - slots + 1);
  return ((saturated.at(-1) ?? 0) - (saturated[0] ?? 0)) / (saturated.length - 1);
}

function stepOf({ firstTextMs, lastTextMs, completionTokens }: Answer): number {
  return (lastTextMs - firstTextMs) / (completionTokens - 1);
}

function timeToFirstText({ sentMs, firstTextMs }: Answer): number {
  return firstTextMs - sentMs;
}
