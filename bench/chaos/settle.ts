// Final check of a schedule, after all faults are repaired. Every replica must have each response that a client knows, with the
// final status that the client saw. Every server must respond to requests, and no request, file or thread may be left over.
import { readdirSync, readlinkSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { answered } from "./client.ts";
import { codeOf, type KnownResponse, type Ledger } from "./ledger.ts";
import type { ChaosRig } from "./rig/rig.ts";
import type { ChaosServer } from "./rig/server.ts";
import { judgeText, type Resource } from "./work/responses.ts";

const pollMs = 50;
/** Largest number of session folders that may remain, because sessions keep their working directory for 30 minutes. */
const mostSessions = 128;
/** Allowed growth since the warm-up of the numbers of file descriptors, threads, temporary entries and child processes. */
const slack = { handles: 40, threads: 24, entries: 10 + mostSessions, places: 0 };

export interface Baseline {
  readonly handles: number;
  readonly threads: number;
  readonly entries: number;
  readonly places: number;
}

export function baselineOf(rig: ChaosRig, { pid, places }: ChaosServer): Baseline {
  return {
    handles: handlesOf(pid),
    threads: readdirSync(`/proc/${pid}/task`).length,
    entries: rig.temporaryEntries().length,
    places: places.length,
  };
}

/**
 * Returns the number of open files, sockets and pipes of a process. JavaScript modules are not counted, because Node.js does not
 * close a module that a thread was reading when a fault ended the thread.
 */
function handlesOf(pid: number): number {
  const folder = `/proc/${pid}/fd`;
  return readdirSync(folder).filter((name) => {
    try {
      return !/\.m?js$/.test(readlinkSync(`${folder}/${name}`));
    } catch {
      return false;
    }
  }).length;
}

/** Repeats a check until it returns null (no problem) or the limit is reached. Returns the last result of the check. */
async function until(check: () => Promise<string | null>, limitMs: number): Promise<string | null> {
  const end = performance.now() + limitMs;
  for (;;) {
    const wrong = await check();
    if (wrong === null || performance.now() > end) return wrong;
    await sleep(pollMs);
  }
}

export async function settle(
  rig: ChaosRig,
  ledger: Ledger,
  baselines: ReadonlyMap<ChaosServer, Baseline>,
  limitMs: number,
): Promise<void> {
  await Promise.all(rig.servers.map((server) => answers(server, ledger, limitMs)));
  await Promise.all([...ledger.responses.values()].map((known) => judgeStored(rig, ledger, known, limitMs)));
  await Promise.all(rig.servers.map((server) => nothingLeft(rig, server, ledger, baselines.get(server), limitMs)));
}

/** Checks that a server responds to chat requests and creates stored responses. */
async function answers(server: ChaosServer, ledger: Ledger, limitMs: number): Promise<void> {
  for (const model of ["tiny", "caller"]) {
    const wrong = await until(async () => {
      const body = { model, messages: [{ role: "user", content: "x" }], max_tokens: 2 };
      const call = await answered(`${server.url}/v1/chat/completions`, { body }, limitMs);
      return call.status === 200 ? null : `${call.status} ${call.reason} ${call.text.slice(0, 200)}`;
    }, limitMs);
    if (wrong !== null) ledger.broken(`after the faults, ${model} does not answer on ${server.url}: ${wrong}`);
  }
  const wrong = await until(async () => {
    const body = { model: "tiny", input: "x", max_output_tokens: 2, background: true };
    const call = await answered(`${server.url}/v1/responses`, { body }, limitMs);
    return call.status === 200 ? null : `${call.status} ${call.reason} ${call.text.slice(0, 200)}`;
  }, limitMs);
  if (wrong !== null) ledger.broken(`after the faults, ${server.url} stores no responses: ${wrong}`);
}

async function judgeStored(rig: ChaosRig, ledger: Ledger, known: KnownResponse, limitMs: number): Promise<void> {
  const { id, what, deletion, seenEnd } = known;
  const wrong = await until(async () => {
    const calls = await Promise.all(
      rig.servers.map((server) => answered(`${server.url}/v1/responses/${id}`, {}, limitMs)),
    );
    const shown = calls.map((call) =>
      call.status === 200 ? (call.json as unknown as Resource).status : (codeOf(call.json) ?? call.reason),
    );
    const [first = ""] = shown;
    if (shown.some((one) => one !== first)) return `replicas disagree: ${shown.join(", ")}`;
    if (first === "not_found")
      return deletion !== "none" || ledger.mayLoseOf(known.server)
        ? null
        : `lost after its id was given (seen: ${seenEnd})`;
    if (deletion === "done") return `deleted, but shown as ${first}`;
    if (!["completed", "incomplete", "failed", "cancelled"].includes(first)) return `without an end: ${first}`;
    if (seenEnd !== null && first !== seenEnd) return `a client saw that it is ${seenEnd}; it is stored as ${first}`;
    judgeText({ ledger }, calls[0]?.json as unknown as Resource, known);
    return null;
  }, limitMs);
  if (wrong !== null) ledger.broken(`${what}: response ${id}: ${wrong}`);
  else if (known.hasEvents && deletion === "none" && seenEnd !== null && !ledger.mayLoseOf(known.server))
    await judgeLog(rig, ledger, known, limitMs);
}

/** Checks that every server has stored all events of a response whose end a client has seen. */
async function judgeLog(rig: ChaosRig, ledger: Ledger, known: KnownResponse, limitMs: number): Promise<void> {
  const { id, what } = known;
  const wrong = await until(async () => {
    for (const server of rig.servers) {
      const call = await answered(`${server.url}/v1/responses/${id}?stream=true`, {}, limitMs);
      if (call.status !== 200) return `its events cannot be read: ${call.status} ${call.text.slice(0, 200)}`;
      ledger.judgeEvents(`${what}: stored events of ${id}`, call, known, 0, await call.ended);
    }
    return null;
  }, limitMs);
  if (wrong !== null) ledger.broken(`${what}: response ${id}: ${wrong}`);
}

async function nothingLeft(
  rig: ChaosRig,
  server: ChaosServer,
  ledger: Ledger,
  baseline: Baseline | undefined,
  limitMs: number,
): Promise<void> {
  if (baseline === undefined) return;
  const wrong = await until(async () => {
    const { text } = await answered(`${server.url}/v1/system/requests`, {}, limitMs);
    if (!/"data":\[\]/.test(text)) return `requests in progress: ${text.slice(0, 300)}`;
    const now = baselineOf(rig, server);
    for (const what of Object.keys(slack) as (keyof Baseline)[]) {
      if (now[what] > baseline[what] + slack[what]) return `${what}: ${now[what]}, after the warm-up ${baseline[what]}`;
    }
    return null;
  }, limitMs);
  if (wrong !== null) ledger.broken(`left over on ${server.url}: ${wrong}`);
}
