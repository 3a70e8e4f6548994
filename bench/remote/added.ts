// Time that troupe adds to the first text of each request. At many clients, the first text of a llama-server varies by hundreds of
// milliseconds from request to request, so the difference of two medians says little. Here a recorder in front of the llama-server gives the
// server's part of each request, and the rest is what the way to the server and back took.
import { setTimeout as sleep } from "node:timers/promises";
import { table } from "../../cli/bench/report.ts";
import { ServerError } from "../../runtime/errors.ts";
import { firstTextAfterMs, isWhole, type Question } from "../serving/client/ask.ts";
import { askAtOnce } from "../serving/client/crowd.ts";
import { SizedPrompts } from "../serving/client/sized-prompts.ts";
import { percentiles } from "../serving/client/statistics.ts";
import { restMs } from "../serving/sides.ts";
import type { Recorder } from "./recorder.ts";

export interface AddedOptions {
  readonly clients: readonly number[];
  readonly rounds: number;
  /** Requests of each client in a round. */
  readonly requestsEach: number;
  readonly promptTokens: number;
  readonly maxTokens: number;
}

/**
 * Requests that troupe answers before the measurement, so that V8 has compiled its code: the first requests of a process take some 3 ms
 * longer than later ones, and a server is started once.
 */
const warmUpRequests = 320;
const warmUpClients = 8;

/** Times of one round in ms, one of each request. */
interface Times {
  /** From the request to the first text, without the server's part. */
  readonly added: number[];
  readonly firstText: number[];
}

/** Returns a table of the times through troupe (at `near`), and through the recorder alone. */
export async function addedTable(near: URL, recorder: Recorder, options: AddedOptions): Promise<string> {
  const { clients, rounds } = options;
  const prompts = await SizedPrompts.create(recorder.url);
  const header = ["clients", "way", "requests", "added ms, p50", "p90", "p99", "first text ms, p50", "p90", "p99"];
  const rows: string[][] = [];
  await warmUp(near);
  let seed = 1;
  for (const count of clients) {
    const ways = [
      { name: "through troupe", url: near, times: { added: [], firstText: [] } as Times },
      { name: "recorder alone", url: recorder.url, times: { added: [], firstText: [] } as Times },
    ];
    for (let round = 0; round < rounds; round++) {
      for (const { name, url, times } of round % 2 === 0 ? ways : ways.toReversed()) {
        process.stderr.write(`${count} clients, round ${round + 1} of ${rounds}, ${name}\n`);
        await sleep(restMs);
        await measure(url, recorder, prompts, count, seed, options, times);
        seed += count * options.requestsEach;
      }
    }
    for (const { name, times } of ways) {
      const cells = [times.added, times.firstText].flatMap((values, i) => {
        const { p50, p90, p99 } = percentiles(values);
        return [p50, p90, p99].map((ms) => ms.toFixed(i === 0 ? 1 : 0));
      });
      rows.push([String(count), name, String(times.added.length), ...cells]);
    }
  }
  return table(header, rows);
}

async function warmUp(url: URL): Promise<void> {
  process.stderr.write(`warm-up: ${warmUpRequests} requests\n`);
  const question: Question = { messages: [{ role: "user", content: "Hi" }], maxTokens: 1 };
  const each = Array.from({ length: warmUpRequests / warmUpClients }, () => question);
  await askAtOnce(
    url,
    Array.from({ length: warmUpClients }, () => each),
  );
}

async function measure(
  url: URL,
  recorder: Recorder,
  prompts: SizedPrompts,
  clients: number,
  firstSeed: number,
  { requestsEach, promptTokens, maxTokens }: AddedOptions,
  times: Times,
): Promise<void> {
  let seed = firstSeed;
  const questions = Array.from({ length: clients }, () =>
    prompts.many(requestsEach, promptTokens).map((content): Question & { readonly seed: number } => ({
      messages: [{ role: "user", content }],
      maxTokens,
      seed,
      fields: { seed: seed++, ignore_eos: true },
    })),
  );
  const { answers } = await askAtOnce(url, questions);
  for (const [i, { seed }] of questions.flat().entries()) {
    const [answer, visit] = [answers[i], recorder.visits.get(seed)];
    if (answer === undefined || !isWhole(answer) || visit === undefined)
      throw new ServerError("internal", `request ${seed} expected an answer; got ${answer?.error ?? "none"}`);
    const firstText = firstTextAfterMs(answer);
    times.firstText.push(firstText);
    times.added.push(firstText - (visit.firstTextMs - visit.startMs));
  }
}
