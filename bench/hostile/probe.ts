// Probe: one attack on a server, and the attacker's result. measure.ts measures the cost to the other clients.
import { setTimeout as sleep } from "node:timers/promises";
import type { EngineName } from "../../engines/engine.ts";
import type { EdgeName } from "../../http/server/listen.ts";
import { isNamed, type Reply, summary } from "./rig/client.ts";
import type { Rig } from "./rig/rig.ts";
import type { HostileServer, ServerChanges } from "./rig/server.ts";

export interface Outcome {
  /** The attacker's result as text. */
  readonly attacker: string;
  /** Whether the server handled the attack correctly. */
  readonly isHeld: boolean;
}

interface CommonProbe {
  readonly name: string;
  /** Number of the tested weakness, shown in the results. */
  readonly finding: number;
  /**
   * Settings that affect the result of the probe. The probe runs with each value of these settings. Of the other
   * settings, it uses only the first value.
   */
  readonly concerns: readonly ("edge" | "engine")[];
  /** Engines to which the probe applies; all by default. */
  readonly engines?: readonly EngineName[];
  readonly edges?: readonly EdgeName[];
  /** Maximum duration of the attack. */
  readonly limitMs?: number;
  /** Returns why the probe cannot run on this machine; null if it can. */
  readonly obstacle?: () => string | null;
}

/** Attack that runs while a bystander (a well-behaved client) uses the server. */
export interface ServerProbe extends CommonProbe {
  readonly settings?: (rig: Rig) => ServerChanges | Promise<ServerChanges>;
  /** Attacks constrained decoding, so the bystander also sends requests with schemas. */
  readonly hasSchema?: boolean;
  /** Exempts the bystander from the thresholds, for example because it cannot connect during the attack. */
  readonly isBystanderExempt?: boolean;
  /** Prepares the attack before the measurement starts. */
  prepare?(rig: Rig): Promise<void>;
  run(rig: Rig & { readonly server: HostileServer }): Promise<Outcome>;
}

/** Probe that runs without a bystander (a well-behaved client). If it needs servers, it starts them itself. */
export interface LoneProbe extends CommonProbe {
  runAlone(rig: Rig): Promise<Outcome>;
}

export type Probe = ServerProbe | LoneProbe;

/** Passes if each reply is a success or an error with a known code. */
export function namedReplies(replies: readonly Reply[]): Outcome {
  return { attacker: summary(replies), isHeld: replies.length > 0 && replies.every(isNamed) };
}

/** Same as `namedReplies`, for headers that are too long: the server may also close the connection without a response. */
export function namedOrClosed(replies: readonly Reply[]): Outcome {
  const answered = replies.filter(({ failure }) => failure !== "ECONNRESET");
  return { attacker: summary(replies), isHeld: answered.every(isNamed) };
}

/** Same as `namedReplies`, for requests with long responses: ignores requests that still run after `ms`. */
export async function namedRepliesWithin(ms: number, sent: readonly Promise<Reply>[]): Promise<Outcome> {
  const replies: Reply[] = [];
  const kept = sent.map(async (reply) => void replies.push(await reply));
  await Promise.race([Promise.all(kept), sleep(ms)]);
  const running = sent.length - replies.length;
  const shown = [
    ...(replies.length === 0 ? [] : [summary(replies)]),
    ...(running === 0 ? [] : [`${running} still running`]),
  ];
  return { attacker: shown.join(", "), isHeld: replies.every(isNamed) };
}
