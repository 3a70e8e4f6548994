// Scenario `hangups`: a third of many clients disconnect, some in mid-stream and some while they wait, twice. No slot, queue place
// or memory may leak.
//
// A leak is looked for from outside. The engine must stand still; and with every slot and place free, a burst of some more
// clients than both hold must see exactly those too many refused: each sequence left over would refuse one more.
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
/** Texts after which a client goes away in mid-stream, at most. */
const mostTexts = 24;
/** Time after which a client goes away that has no text yet, at most. */
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

/** Every third client goes away: by turns once it has some texts, or when it has waited too long for the first. */
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
