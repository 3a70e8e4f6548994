// `bench hostile --faults`: kills a model's engine, unloads the model, and removes and restores its file, in turn. The other
// model and every route must keep working. The damaged model must come back without a restart of the server.
import { renameSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { atMost, exactly, findingsTable, told } from "../overload/finding.ts";
import type { HostileOptions } from "./options.ts";
import { Bystander, failuresOf, medianMs, worstMs } from "./rig/bystander.ts";
import { otherKey, seconds } from "./rig/client.ts";
import { tinyModel } from "./rig/models.ts";
import { Rig } from "./rig/rig.ts";
import type { HostileServer } from "./rig/server.ts";

const backWithinMs = 30_000;
const longestDelayMs = 500;
const quietMs = 3000;
const routes = ["/health", "/v1/models", "/metrics", "/v1/system/info"];

interface Patient {
  readonly rig: Rig;
  readonly server: HostileServer;
  /** Name of the model that the faults damage. */
  readonly model: string;
}

/** Faults from which the server must recover. It recovers from a removed file only after the file is back. */
const faults: Readonly<Record<string, (patient: Patient) => Promise<void>>> = {
  async "engine killed"({ server, model }) {
    const pid = server.enginePidOf(model);
    if (pid !== null) process.kill(pid, "SIGKILL");
  },
  async unloaded({ rig, model }) {
    await rig.post("/v1/models/unload", { model_id: model });
    await rig.post("/v1/models/reload", { model_id: model });
  },
  async "file gone"({ rig, model }) {
    const away = `${model}.away`;
    renameSync(model, away);
    await rig.post("/v1/models/unload", { model_id: model });
    await rig.post("/v1/models/reload", { model_id: model });
    await rig.chat({ model });
    renameSync(away, model);
    await rig.post("/v1/models/reload", { model_id: model });
  },
};

/** Runs the faults on the first of the chosen HTTP server implementations and on the first chosen engine. */
export async function runFaults(options: HostileOptions, rounds: number): Promise<string> {
  const [edge, engine] = [options.edges[0] ?? "node", options.engines[0] ?? "wasm"];
  const rig = new Rig({ ...options, edge, engine });
  try {
    const [well, model] = [await tinyModel(rig.folder, "well"), await tinyModel(rig.folder, "harmed")];
    const server = await rig.start({ models: [well, model] });
    const bystander = new Bystander({ url: server.url, key: otherKey, schemas: "new" });
    await sleep(quietMs);
    const quiet = await bystander.take();
    // Without engine processes there is nothing to kill.
    const names = Object.keys(faults).filter((name) => name !== "engine killed" || server.enginePids.length > 0);
    const results: Round[] = [];
    for (let round = 0; round < rounds; round++) {
      const name = names[round % names.length] ?? "";
      results.push(await oneRound(name, { rig, server, model }));
    }
    const beside = await bystander.take();
    await bystander.stop();
    const lost = results.filter(({ backMs }) => backMs === null);
    const failures = [beside.chats, beside.schemaChats, beside.healths].map(failuresOf).filter((text) => text !== "");
    return findingsTable(`${rounds} rounds, ${edge}, ${engine}`, [
      ...names.map((name) => told(`${name}: until it answered again, worst`, worstOf(results, name))),
      exactly("rounds after which it did not answer again", lost.length, 0),
      exactly(
        "routes that failed",
        results.reduce((sum, { failedRoutes }) => sum + failedRoutes, 0),
        0,
      ),
      told("requests to the other model that failed", failures.join("; ") || "none"),
      exactly("kinds of requests to it that failed", failures.length, 0),
      atMost(
        "its first token over the quiet median",
        worstMs(beside.chats) - medianMs(quiet.chats),
        longestDelayMs,
        " ms",
        0,
      ),
      exactly("server ended", Number(server.hasEnded), 0),
    ]);
  } finally {
    await rig.close();
  }
}

interface Round {
  readonly name: string;
  /** Time until the model worked again; null if it did not recover within the limit. */
  readonly backMs: number | null;
  readonly failedRoutes: number;
}

async function oneRound(name: string, patient: Patient): Promise<Round> {
  const { rig, model } = patient;
  const running = rig.chat({ model, max_tokens: 200, ignore_eos: true });
  await faults[name]?.(patient);
  const startMs = performance.now();
  const replies = await Promise.all(routes.map((route) => rig.get(route)));
  let backMs: number | null = null;
  while (backMs === null && performance.now() - startMs < backWithinMs) {
    const { status } = await rig.chat({ model });
    if (status === 200) backMs = performance.now() - startMs;
    else await sleep(50);
  }
  await running;
  return { name, backMs, failedRoutes: replies.filter(({ status }) => status !== 200).length };
}

function worstOf(results: readonly Round[], fault: string): string {
  const times = results.filter(({ name }) => name === fault).map(({ backMs }) => backMs ?? Number.POSITIVE_INFINITY);
  const worst = Math.max(0, ...times);
  return `${times.length} times, ${Number.isFinite(worst) ? seconds(worst) : "never"}`;
}
