// Scenario `stalled`: clients that request long responses and never read, in addition to clients that read. The reading clients
// must not be affected, and the server must disconnect the stalled clients.
//
// The readers' rate is measured only after the server has stopped generating for the stalled clients. This state is detected
// from outside: none of their responses is complete, no connection is closed, and the engine's process uses no CPU time.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { mean } from "../serving/client/statistics.ts";
import { holdsWholeAnswer, standStill } from "./client.ts";
import { atLeast, exactly, type Finding, silence, told } from "./finding.ts";
import { type ScenarioOptions, type Server, withServer } from "./server.ts";
import { askInTurns, msUntil, outputRate, Workload } from "./workload.ts";

const standing = 50;
const readers = 8;
const requestsEach = 8;
/**
 * Number of choices (`n`) of a stalled request. A token takes about 1.6 KB, so two choices of `longAnswer` tokens exceed the 4
 * MB that Linux buffers for a connection.
 */
const standingChoices = 2;
const longAnswer = 1900;
/**
 * Seconds after which the server disconnects a client that does not read. The limit must be longer than the time until all clients
 * have stalled and the readers have been measured. Clients stall when the buffers of their connections are full. If Linux buffers
 * 4 MB for a connection, the engine must generate about 120,000 tokens until all clients have stalled. If net.ipv4.tcp_wmem and
 * tcp_rmem are 64 KiB, this takes only seconds.
 */
const stalledReaderSecs = 120;
const settleLimitMs = 90_000;
const idleLoad = 0.02;
/** Time after the limit in which the server notices the stalled client and closes the connection. */
const graceMs = 5000;

export function stalled(options: ScenarioOptions): Promise<Finding[]> {
  return withServer(options, ["--stalled-reader-secs", String(stalledReaderSecs)], standAndRead);
}

async function standAndRead(server: Server): Promise<Finding[]> {
  const load = new Workload(4);
  const readersRate = async () => {
    const answers = await askInTurns(server.port, load.questions(readers * requestsEach), readers);
    return outputRate(answers);
  };
  await readersRate();
  const before = await readersRate();

  const sockets = load
    .questions(standing)
    .map(({ prompt }) => standStill(server.port, { prompt, maxTokens: longAnswer }, standingChoices));
  const settledMs = await msUntil(async () => (await server.engineLoad()) < idleLoad, settleLimitMs);
  const lastStallMs = performance.now();
  const beside = await readersRate();
  const stillThere = server.connectionCount();

  const limitMs = stalledReaderSecs * 1000 + graceMs;
  const goneMs = await msUntil(() => server.connectionCount() === 0, limitMs);
  const goneAfterStallMs = performance.now() - lastStallMs;
  const whole = await Promise.all(sockets.map(holdsWholeAnswer));
  await sleep(1000);
  const after = await readersRate();
  return [
    told(
      "engine idle, all descheduled",
      settledMs === null ? "never" : `${(settledMs / 1000).toFixed(1)} s after they came`,
    ),
    exactly("still connected at the end of the readers' run", stillThere, standing),
    told(
      "readers' tokens/s before / beside / after",
      [before, beside, after].map((rate) => rate.toFixed(0)).join(" / "),
    ),
    atLeast("beside over the mean of before and after", beside / mean([before, after]), 0.95),
    {
      what: "all closed by the server",
      measured: goneMs === null ? "never" : `${(goneAfterStallMs / 1000).toFixed(1)} s after the last stalled`,
      bar: `<= ${limitMs / 1000} s`,
      holds: goneMs !== null && goneAfterStallMs <= limitMs,
    },
    exactly("whole answers among theirs", whole.filter(Boolean).length, 0),
    silence("warned of", server.complaints()),
  ];
}
