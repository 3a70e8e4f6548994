// Measurement of one probe: a quiet time, the attack, a rest; then what it cost the bystander, the front and the memory, and
// which bars it broke.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { sampleMemory } from "../serving/resident-memory.ts";
import { Bystander, failuresOf, medianMs, type Observations, type Waits, worstMs } from "./bystander.ts";
import { otherKey } from "./client.ts";
import type { LoneProbe, Outcome, Probe, ProbeSetup, ServerProbe } from "./probe.ts";
import { Rig } from "./rig.ts";
import type { HostileServer } from "./server.ts";

const memoryPollMs = 500;
const defaultLimitMs = 60_000;
const quietTries = 20;

export interface MeasureOptions extends Omit<ProbeSetup, "folder"> {
  /** The built checkout whose server is attacked. */
  readonly directory: string;
  readonly nodeFlags: readonly string[];
  readonly bars: Bars;
  /** How long the bystander is watched before the attack. */
  readonly quietMs: number;
  /** Longest wait for memory to come back. */
  readonly restMs: number;
}

export interface Bars {
  readonly frontMs: number;
  /** Of the bystander's first token: so many times the quiet one, and so much more. */
  readonly firstTokenFactor: number;
  readonly firstTokenMs: number;
  /** Of memory after a rest, over that before. */
  readonly memoryFactor: number;
}

/** What issue 16 asks for. */
export const bars: Bars = { frontMs: 100, firstTokenFactor: 2, firstTokenMs: 250, memoryFactor: 1.1 };

export interface Watched {
  readonly quietMs: number;
  readonly worstMs: number;
  readonly failures: string;
}

export interface Measurement {
  readonly outcome: Outcome;
  /** null where no server is watched. */
  readonly costs: Costs | null;
  /** Bars that it broke; none where it held. */
  readonly breaches: readonly string[];
}

export interface Costs {
  /** Latest turn of the front's event loop in the quiet time. */
  readonly quietFrontMs: number;
  /** NaN where the front did not say so any more. */
  readonly frontMs: number;
  readonly chats: Watched;
  readonly schemaChats: Watched;
  readonly healthMs: number;
  readonly memoryMiB: { readonly before: number; readonly peak: number; readonly after: number };
  /** What became of the server's process. */
  readonly hasEnded: boolean;
}

/** Never rejects: where the server does not start, that is what was measured. */
export async function measure(probe: Probe, options: MeasureOptions): Promise<Measurement> {
  const folder = mkdtempSync(join(tmpdir(), "troupe-hostile-"));
  const rig = new Rig({ ...options, folder }, options.directory, options.nodeFlags);
  try {
    return await ("runAlone" in probe ? measureAlone(probe, rig) : measureBeside(probe, rig, options));
  } catch (error) {
    return failed(error instanceof Error ? error.message : String(error));
  } finally {
    await rig.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function measureAlone(probe: LoneProbe, rig: Rig): Promise<Measurement> {
  const outcome = await withinLimit(probe, probe.runAlone(rig));
  return { outcome, costs: null, breaches: outcome.isHeld ? [] : ["attacker"] };
}

async function measureBeside(probe: ServerProbe, rig: Rig, options: MeasureOptions): Promise<Measurement> {
  const server = await rig.start(await probe.settings?.(rig));
  rig.server = server;
  const bystander = new Bystander({ url: server.url, key: otherKey, hasSchema: probe.hasSchema ?? false });
  try {
    // What is done for the first time takes longer.
    await watchQuiet(bystander, options.quietMs / 2, probe.hasSchema);
    await server.takeFrontDelayMs();
    const quiet = await watchQuiet(bystander, options.quietMs, probe.hasSchema);
    const quietFrontMs = await server.takeFrontDelayMs();
    const before = server.residentMiB();
    const sampler = sampleMemory([server.pid]);
    const outcome = await withinLimit(probe, probe.run(Object.assign(rig, { server })));
    rig.end();
    server.readOn();
    const after = await restedMemory(server, before * options.bars.memoryFactor, options.restMs);
    const frontMs = await server.takeFrontDelayMs();
    const beside = await bystander.take();
    const memoryMiB = { before, peak: sampler.stop() ?? 0, after };
    const costs = { ...costsOf(quiet, beside), quietFrontMs, frontMs, memoryMiB, hasEnded: server.hasEnded };
    return { outcome, costs, breaches: breachesOf(probe, outcome, costs, options.bars) };
  } finally {
    await bystander.stop();
  }
}

/** Observes for so long, and longer where no chat was answered by then. */
async function watchQuiet(bystander: Bystander, ms: number, hasSchema = false): Promise<Observations> {
  for (let tries = 1; ; tries++) {
    await sleep(ms);
    const seen = await bystander.take();
    const isEnough = seen.chats.doneMs.length > 0 && (!hasSchema || seen.schemaChats.doneMs.length > 0);
    if (isEnough || tries === quietTries) return seen;
  }
}

async function withinLimit({ limitMs = defaultLimitMs }: Probe, running: Promise<Outcome>): Promise<Outcome> {
  const late = new AbortController();
  const limit = sleep(limitMs, undefined, { signal: late.signal }).then(() => ({
    attacker: `not over after ${limitMs / 1000} s`,
    isHeld: false,
  }));
  limit.catch(() => {});
  // What is left over ends with the probe, however that is.
  running.catch(() => {});
  try {
    return await Promise.race([running, limit]);
  } finally {
    late.abort();
  }
}

/** Resident memory once it is down to so much, or after the longest rest. */
async function restedMemory(server: HostileServer, enoughMiB: number, restMs: number): Promise<number> {
  const end = performance.now() + restMs;
  await sleep(Math.min(2 * memoryPollMs, restMs));
  while (performance.now() < end && !server.hasEnded && server.residentMiB() > enoughMiB) await sleep(memoryPollMs);
  return server.residentMiB();
}

function costsOf(quiet: Observations, beside: Observations) {
  const watched = (before: Waits, during: Waits): Watched => ({
    quietMs: medianMs(before),
    worstMs: worstMs(during),
    failures: failuresOf(during),
  });
  return {
    chats: watched(quiet.chats, beside.chats),
    schemaChats: watched(quiet.schemaChats, beside.schemaChats),
    healthMs: worstMs(beside.healths),
  };
}

function breachesOf(probe: ServerProbe, { isHeld }: Outcome, costs: Costs, limits: Bars): string[] {
  const { frontMs, chats, schemaChats, memoryMiB, hasEnded } = costs;
  const isLate = ({ quietMs, worstMs }: Watched) => worstMs > limits.firstTokenFactor * quietMs + limits.firstTokenMs;
  const broken = {
    attacker: !isHeld,
    "server ended": hasEnded,
    front: !(frontMs <= limits.frontMs),
    "first token": !probe.isBystanderExempt && isLate(chats),
    "bystander failed": !probe.isBystanderExempt && chats.failures !== "",
    "schema's first token": isLate(schemaChats),
    "schema failed": schemaChats.failures !== "",
    memory: memoryMiB.after > memoryMiB.before * limits.memoryFactor,
  };
  return Object.entries(broken).flatMap(([name, isBroken]) => (isBroken ? [name] : []));
}

function failed(message: string): Measurement {
  const [first = ""] = message.split("\n");
  return { outcome: { attacker: first, isHeld: false }, costs: null, breaches: ["start"] };
}
