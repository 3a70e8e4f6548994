// Scenario `hangups`: a third of many clients disconnect, some in mid-stream and some while they wait in the queue. This
// happens twice. No slot, queue entry or memory may leak.
//
// Leaks are detected from outside. First the engine must become idle, so that all slots and queue entries are free. Then
// slightly more clients than slots and queue entries send requests, and exactly the excess must be rejected. Each leaked
// sequence would cause one more rejection.
import { setTimeout as sleep } from "node:timers/promises";
import { clients } from "./burst.ts";
import { type Answer, ask, type HangUp } from "./client.ts";
import { atLeast, atMost, exactly, type Finding, silence, told } from "./finding.ts";
import { type ResidentMiB, type ScenarioOptions, type Server, withServer } from "./server.ts";
import { askInTurns, countOf, msUntil, outputRate, slots, Workload } from "./workload.ts";

const queue = 512;
const tooMany = 20;
const idleMs = 10_000;
const standstillMs = 10_000;
const idleLoad = 0.02;
/** Maximum number of texts after which a client disconnects in mid-stream. */
const mostTexts = 24;
/** Maximum time after which a client without a text disconnects. */
const longestPatienceMs = 8000;

export function hangups(options: ScenarioOptions): Promise<Finding[]> {
  return withServer(options, ["--max-queue", String(queue)], leave);
}

async function leave(server: Server): Promise<Finding[]> {
  const load = new Workload(3);
  const rateOf32 = async () => outputRate(await askInTurns(server.port, load.questions(2 * slots), slots));
  await rateOf32();
  const rateBefore = await rateOf32();
  const first = await burstWithHangups(server, load);
  const afterFirst = await settledMemory(server);
  const second = await burstWithHangups(server, load);
  const standstill = await msUntil(async () => (await server.engineLoad()) < idleLoad, standstillMs);
  const afterSecond = await settledMemory(server);
  const rateAfter = await rateOf32();
  const probe = await Promise.all(
    load.questions(slots + queue + tooMany).map((question) => ask(server.port, { ...question, maxTokens: 32 })),
  );
  const both = [...first, ...second];
  const left = both.filter(({ outcome }) => outcome === "hung up");
  const inQueue = left.filter(({ firstTextMs }) => Number.isNaN(firstTextMs));
  return [
    told("hung up in mid-stream / while waiting", `${left.length - inQueue.length} / ${inQueue.length}`),
    exactly("the others answered in full", countOf(both, "done"), both.length - left.length),
    {
      what: "the engine stands still afterwards",
      measured: standstill === null ? "no" : `after ${(standstill / 1000).toFixed(1)} s`,
      bar: `within ${standstillMs / 1000} s`,
      holds: standstill !== null,
    },
    exactly(`refused of ${probe.length} clients at once`, countOf(probe, "refused"), tooMany),
    exactly("of them answered in full", countOf(probe, "done"), slots + queue),
    atLeast("tokens/s of 32 clients, after over before", rateAfter / rateBefore, 0.9),
    ...memory(afterFirst, afterSecond),
    silence("warned of", server.complaints()),
  ];
}

/**
 * Sends a burst in which every third client disconnects: alternately after some texts, or after too long a wait for the first
 * text.
 */
function burstWithHangups(server: Server, load: Workload): Promise<Answer[]> {
  const answers = load.questions(clients).map((question, i) => {
    if (i % 3 !== 0) return ask(server.port, question);
    const hangUp: HangUp =
      i % 2 === 0 ? { afterTexts: 1 + load.below(mostTexts) } : { afterMs: load.below(longestPatienceMs) };
    return ask(server.port, question, { hangUp });
  });
  return Promise.all(answers);
}

async function settledMemory(server: Server): Promise<ResidentMiB> {
  await sleep(idleMs);
  await server.collectGarbage();
  return server.residentMiB();
}

function memory(first: ResidentMiB, second: ResidentMiB): Finding[] {
  const show = ({ server, engine }: ResidentMiB) => `${server.toFixed(0)} + ${engine.toFixed(0)} MiB`;
  const sum = ({ server, engine }: ResidentMiB) => server + engine;
  return [
    told("resident, server + engine, after the first run", show(first)),
    told("resident, server + engine, after the second", show(second)),
    atMost("second over first, both processes", sum(second) / sum(first), 1.05),
    atMost("second over first, server alone", second.server / first.server, 1.05),
  ];
}
