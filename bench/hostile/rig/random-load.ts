// `bench hostile --random`: attackers send random grammars, schemas, regexes and templates to one server, while the bystander
// uses the same server.
import { renameSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type HostileCase, hostileGrammar, hostileTemplate } from "../../../test/fixtures/hostile/random-grammars.ts";
import { atMost, exactly, type Finding, findingsTable, told } from "../../overload/finding.ts";
import { randomFrom } from "../../serving/client/random.ts";
import { percentiles } from "../../serving/client/statistics.ts";
import type { HostileOptions } from "../options.ts";
import { Bystander, failuresOf, medianMs, worstMs } from "./bystander.ts";
import { attackerKey, isNamed, otherKey, type Reply, seconds, summary } from "./client.ts";
import { tinyModel } from "./models.ts";
import { Rig } from "./rig.ts";
import { StolenTime } from "./stolen-time.ts";

const attackers = 3;
const restMs = 5000;
const patienceMs = 60_000;
/** Maximum extra time to the bystander's first token, compared with the time before the attack. */
const longestDelayMs = 500;
/** Maximum wait for the response to a new schema. The engine needs 250 ms on a separate core to compile the schema. */
const longestNewSchemaMs = 5000;
const errorLevel = 50;
/** Every `casesPerTemplate`-th case is a chat template; the other cases are grammars. */
const casesPerTemplate = 4;

type RandomText = HostileCase & { readonly number: number };

interface Sent {
  readonly kind: HostileCase["kind"];
  readonly number: number;
  readonly reply: Reply;
}

/** Runs the attack on the first of the chosen HTTP server implementations and on the first chosen engine. */
export async function runRandom(options: HostileOptions, count: number): Promise<string> {
  const [edge, engine] = [options.edges[0] ?? "node", options.engines[0] ?? "wasm"];
  // The texts are generated before the measurement, because generating them takes minutes.
  const texts = Array.from({ length: count }, (_, number) => ({ number, ...caseOf(options.seed, number) }));
  const rig = new Rig({ ...options, edge, engine });
  try {
    const templated = await tinyModel(rig.folder, "templated");
    const server = await rig.start({ models: [options.model, templated] });
    const bystander = new Bystander({ url: server.url, key: otherKey, schemas: "mostly known" });
    await sleep(restMs);
    const quiet = await bystander.take();
    await server.takeFrontDelayMs();
    const stolen = new StolenTime();
    const sent = await sendAll(rig, templated, texts);
    rig.hangUp();
    const [frontMs, beside] = [await server.takeFrontDelayMs(), await bystander.take()];
    await bystander.stop();
    const delays = {
      chat: [quiet.chats, beside.chats],
      "known schema": [quiet.knownSchemaChats, beside.knownSchemaChats],
    } as const;
    return findingsTable(`${sent.length} random texts, seed ${options.seed}, ${edge}, ${engine}`, [
      ...outcomes(sent),
      exactly(
        "answers that are neither whole nor a named error",
        sent.filter(({ reply }) => !isNamed(reply)).length,
        0,
      ),
      ...Object.entries(delays).flatMap(([name, [before, during]]) => [
        told(`bystander's ${name}, first token, quiet median`, seconds(medianMs(before))),
        atMost(`bystander's ${name}, worst over that`, worstMs(during) - medianMs(before), longestDelayMs, " ms", 0),
        told(`bystander's ${name}, over that`, spread(during.doneMs, medianMs(before))),
        told(`bystander's ${name}, failed`, failuresOf(during) || "none"),
      ]),
      told("bystander's new schemas, first token, quiet median", seconds(medianMs(quiet.schemaChats))),
      told("bystander's new schemas, median", seconds(medianMs(beside.schemaChats))),
      atMost("bystander's new schemas, worst", worstMs(beside.schemaChats), longestNewSchemaMs, " ms", 0),
      told("bystander's new schemas, failed", failuresOf(beside.schemaChats) || "none"),
      atMost("front delay, max", frontMs, 100, " ms", 0),
      exactly("server ended", Number(server.hasEnded), 0),
      told("errors in the log", errorsIn(server.log)),
      told("processor time that other machines of the host took", stolen.stop()),
    ]);
  } finally {
    await rig.close();
  }
}

/** Formats how far the waits exceed the wait before the attack, `quietMs`, and how many waits exceed the threshold. */
function spread(waitsMs: readonly number[], quietMs: number): string {
  const { p50, p99 } = percentiles(waitsMs.map((ms) => ms - quietMs));
  const beyond = waitsMs.filter((ms) => ms - quietMs > longestDelayMs).length;
  return `p50 ${p50.toFixed(0)}, p99 ${p99.toFixed(0)} ms; ${beyond} of ${waitsMs.length} beyond ${longestDelayMs} ms`;
}

async function sendAll(rig: Rig, templated: string, texts: readonly RandomText[]): Promise<readonly Sent[]> {
  const templates = texts.filter(({ kind }) => kind === "template");
  const others = texts.filter(({ kind }) => kind !== "template");
  const sent: Sent[] = [];
  const sendFrom = async (queue: RandomText[], send: (text: HostileCase) => Promise<Reply>) => {
    for (let text = queue.shift(); text !== undefined; text = queue.shift()) {
      const reply = await send(text);
      if (!isNamed(reply) || reply.ms > 10_000) tell({ ...text, reply });
      sent.push({ ...text, reply });
    }
  };
  await Promise.all([
    // Templates are sent one at a time because the template is a setting of the model.
    sendFrom(templates, (text) => sendTemplate(rig, templated, String(text.value))),
    ...Array.from({ length: attackers }, (_, i) => sendFrom(others, (text) => sendGrammar(rig, text, i))),
  ]);
  return sent;
}

/** Returns a case that depends only on the seed and its number. */
function caseOf(seed: number, number: number): HostileCase {
  const random = randomFrom(seed, number);
  return number % casesPerTemplate === 0 ? hostileTemplate(random) : hostileGrammar(random);
}

function sendGrammar(rig: Rig, { kind, value }: HostileCase, attacker: number): Promise<Reply> {
  const options = { key: `${attackerKey}-${attacker}`, signal: AbortSignal.timeout(patienceMs) };
  return rig.chat({ grammar: { type: kind, value }, max_tokens: 16, temperature: 1 }, options);
}

/** Sets the model's template, reloads the model and sends it a request. */
async function sendTemplate(rig: Rig, path: string, template: string): Promise<Reply> {
  const options = { signal: AbortSignal.timeout(patienceMs) };
  renameSync(await tinyModel(rig.folder, "next", template), path);
  for (const change of ["unload", "reload"]) {
    const changed = await rig.post(`/v1/models/${change}`, { model_id: path }, options);
    // These routes report errors without a code.
    if (changed.status !== 200) return { ...changed, code: changed.code ?? `${change}_refused` };
  }
  const messages = Array.from({ length: 5 }, (_, i) => ({ role: i % 2 ? "assistant" : "user", content: "a" }));
  return rig.chat({ model: path, messages }, options);
}

function tell({ kind, number, reply }: Sent): void {
  process.stderr.write(`${kind} ${number}: ${summary([reply])}\n`);
}

function outcomes(sent: readonly Sent[]): Finding[] {
  const kinds = [...new Set(sent.map(({ kind }) => kind))].sort();
  return kinds.map((kind) => {
    const replies = sent.filter((one) => one.kind === kind).map(({ reply }) => reply);
    return told(`${replies.length} of ${kind}`, summary(replies));
  });
}

/** Lists the error messages of the log with their counts. */
function errorsIn(log: string): string {
  const counts = new Map<string, number>();
  for (const line of log.split("\n")) {
    const level = Number(/"level":(\d+)/.exec(line)?.[1] ?? 0);
    const message = /"msg":"([^"]*)"/.exec(line)?.[1];
    if (level >= errorLevel && message !== undefined) counts.set(message, (counts.get(message) ?? 0) + 1);
  }
  return [...counts].map(([message, times]) => `${times} x ${message}`).join("; ") || "none";
}
