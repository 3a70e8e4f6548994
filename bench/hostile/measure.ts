// Measurement of one probe in three phases: a quiet time, the attack, a rest. Reports its cost to another client, to the main
// thread and in memory, and which thresholds were exceeded.
import { setTimeout as sleep } from "node:timers/promises";
import { ownKiB } from "../proc.ts";
import { sampleMemory } from "../serving/resident-memory.ts";
import type { LoneProbe, Outcome, Probe, ServerProbe } from "./probe.ts";
import { Bystander, failuresOf, medianMs, type Observations, type Waits, worstMs } from "./rig/bystander.ts";
import { otherKey } from "./rig/client.ts";
import { Rig, type RigOptions } from "./rig/rig.ts";
import type { HostileServer } from "./rig/server.ts";

const memoryPollMs = 250;
/** Minimum rest after an attack. Lasting damage is visible within this time. */
const shortestRestMs = 500;
const usualLimitMs = 60_000;
const quietTries = 20;
const warmUpChats = 16;

export interface MeasureOptions extends RigOptions {
  readonly bars: Bars;
  /** Time for which the bystander (the well-behaved client) is observed before the attack. */
  readonly quietMs: number;
  /** Maximum time to wait until memory is back to normal. */
  readonly restMs: number;
  /** Maximum duration of any attack, in addition to the limit of its probe. */
  readonly longestMs: number;
}

export interface Bars {
  readonly frontMs: number;
  /** Limit of the bystander's time to first token: `firstTokenFactor` x the time before the attack + `firstTokenMs`. */
  readonly firstTokenFactor: number;
  readonly firstTokenMs: number;
  /** Limit of memory after the rest, as a multiple of memory before the attack. */
  readonly memoryFactor: number;
}

export const bars: Bars = { frontMs: 100, firstTokenFactor: 2, firstTokenMs: 250, memoryFactor: 1.1 };

export interface Watched {
  readonly quietMs: number;
  readonly worstMs: number;
  readonly failures: string;
}

export interface Measurement {
  readonly outcome: Outcome;
  /** Measured costs; null if no server is watched. */
  readonly costs: Costs | null;
  /** Thresholds that were exceeded; empty if none. */
  readonly breaches: readonly string[];
}

export interface Costs {
  /** Maximum delay of the main thread's event loop in the quiet time. */
  readonly quietFrontMs: number;
  /** Maximum delay during the attack; NaN if the main thread stopped responding. */
  readonly frontMs: number;
  readonly chats: Watched;
  readonly schemaChats: Watched;
  readonly healthMs: number;
  readonly memoryMiB: { readonly before: number; readonly peak: number; readonly after: number };
  /** Whether the server's process has exited. */
  readonly hasEnded: boolean;
}

/** Measures a probe on a separate server. Never rejects: a server that fails to start is a result too. */
export async function measure(probe: Probe, options: MeasureOptions): Promise<Measurement> {
  const rig = new Rig(options);
  try {
    if ("runAlone" in probe) return await measureAlone(probe, rig, options);
    return await (await WatchedServer.start(rig, options, probe)).attack(probe);
  } catch (error) {
    return failed(error instanceof Error ? error.message : String(error));
  } finally {
    await rig.close();
  }
}

async function measureAlone(probe: LoneProbe, rig: Rig, { longestMs }: MeasureOptions): Promise<Measurement> {
  const outcome = await withinLimit(probe.runAlone(rig), limitOf(probe, longestMs));
  return { outcome, costs: null, breaches: outcome.isHeld ? [] : ["attacker"] };
}

/**
 * Server under attack and its bystander (a well-behaved client), which has already measured the server at rest. The rig (the
 * environment of the probe) closes the server.
 */
export class WatchedServer {
  readonly #server: HostileServer;
  readonly #bystander: Bystander;
  readonly #rig: Rig & { readonly server: HostileServer };
  readonly #options: MeasureOptions;
  readonly #quiet: Observations;
  readonly #quietFrontMs: number;

  private constructor(
    rig: Rig & { readonly server: HostileServer },
    bystander: Bystander,
    options: MeasureOptions,
    quiet: { readonly seen: Observations; readonly frontMs: number },
  ) {
    this.#server = rig.server;
    this.#rig = rig;
    this.#bystander = bystander;
    this.#options = options;
    this.#quiet = quiet.seen;
    this.#quietFrontMs = quiet.frontMs;
  }

  /** Starts the server that a probe requires. */
  static async start(rig: Rig, options: MeasureOptions, probe: ServerProbe): Promise<WatchedServer> {
    const { hasSchema = false } = probe;
    const server = await rig.start(await probe.settings?.(rig));
    await probe.prepare?.(rig);
    const bystander = new Bystander({ url: server.url, key: otherKey, schemas: hasSchema ? "new" : "none" });
    rig.atEnd(() => bystander.stop());
    await warmUp(rig);
    await watchQuiet(bystander, options.quietMs / 2, hasSchema);
    await server.takeFrontDelayMs();
    const seen = await watchQuiet(bystander, options.quietMs, hasSchema);
    const quiet = { seen, frontMs: await server.takeFrontDelayMs() };
    return new WatchedServer(Object.assign(rig, { server }), bystander, options, quiet);
  }

  get hasEnded(): boolean {
    return this.#server.hasEnded;
  }

  async attack(probe: ServerProbe): Promise<Measurement> {
    const [server, { bars, restMs, longestMs }] = [this.#server, this.#options];
    await Promise.all([this.#bystander.take(), server.takeFrontDelayMs()]);
    const before = server.ownMiB();
    const sampler = sampleMemory([server.pid], ownKiB);
    const outcome = await withinLimit(probe.run(this.#rig), limitOf(probe, longestMs));
    this.#rig.hangUp();
    server.readOn();
    const after = await restedMemory(server, before * bars.memoryFactor, restMs);
    const frontMs = await server.takeFrontDelayMs();
    const beside = await this.#bystander.take();
    const memoryMiB = { before, peak: sampler.stop() ?? 0, after };
    const quietFrontMs = this.#quietFrontMs;
    const costs = { ...costsOf(this.#quiet, beside), quietFrontMs, frontMs, memoryMiB, hasEnded: server.hasEnded };
    return { outcome, costs, breaches: breachesOf(probe, outcome, costs, bars) };
  }
}

/** Sends requests before the measurement, because the first requests take longer and load code that stays in memory. */
async function warmUp(rig: Rig): Promise<void> {
  const grammar = { grammar: { type: "lark", value: 'start: "a" | "b"' } };
  const chats = Array.from({ length: warmUpChats }, (_, i) => rig.chat({ messages: `${i}: hello`, max_tokens: 16 }));
  await Promise.all([...chats, rig.chat(grammar)]);
}

/**
 * Observes in periods of `ms` until each kind of chat has completed at least once, but for at most `quietTries`
 * periods.
 */
async function watchQuiet(bystander: Bystander, ms: number, hasSchema = false): Promise<Observations> {
  for (let tries = 1; ; tries++) {
    await sleep(ms);
    const seen = await bystander.take();
    const isEnough = seen.chats.doneMs.length > 0 && (!hasSchema || seen.schemaChats.doneMs.length > 0);
    if (isEnough || tries === quietTries) return seen;
  }
}

function limitOf({ limitMs = usualLimitMs }: Probe, longestMs: number): number {
  return Math.min(limitMs, longestMs);
}

async function withinLimit(running: Promise<Outcome>, limitMs: number): Promise<Outcome> {
  const limit = new AbortController();
  const late = sleep(limitMs, undefined, { signal: limit.signal }).then(() => ({
    attacker: `not over after ${limitMs / 1000} s`,
    isHeld: false,
  }));
  late.catch(() => {});
  // Nothing awaits the attack after its limit, so a later failure must not be an unhandled rejection.
  running.catch(() => {});
  try {
    return await Promise.race([running, late]);
  } finally {
    limit.abort();
  }
}

/** Returns the resident memory as soon as it is at most `enoughMiB`, or after `restMs`. */
async function restedMemory(server: HostileServer, enoughMiB: number, restMs: number): Promise<number> {
  const end = performance.now() + restMs;
  await sleep(shortestRestMs);
  while (performance.now() < end && !server.hasEnded && server.ownMiB() > enoughMiB) await sleep(memoryPollMs);
  return server.ownMiB();
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
