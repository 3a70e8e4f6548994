// Probe: one attack on a server, and the result for the attacker. measure.ts measures what it costs the other clients.
import { setTimeout as sleep } from "node:timers/promises";
import type { EngineName } from "../../engines/engine.ts";
import type { EdgeName } from "../../http/server/listen.ts";
import { isNamed, type Reply, summary } from "./rig/client.ts";
import type { Rig } from "./rig/rig.ts";
import type { HostileServer, ServerChanges } from "./rig/server.ts";

export interface Outcome {
  /** What became of the attacker, in words. */
  readonly attacker: string;
  /** Whether the server treated the attacker as it should. */
  readonly isHeld: boolean;
}

interface CommonProbe {
  readonly name: string;
  /** Number of the weakness that it tests, shown in the results. */
  readonly finding: number;
  /** Whether the edge or the engine matters; if not, the probe runs on the first one only. */
  readonly concerns: readonly ("edge" | "engine")[];
  /** Engines it makes sense on; all where left out. */
  readonly engines?: readonly EngineName[];
  readonly edges?: readonly EdgeName[];
  /** Longest time the attack may take. */
  readonly limitMs?: number;
  /** Why it cannot be run on this machine; null where it can. */
  readonly obstacle?: () => string | null;
}

/** An attack beside a bystander. */
export interface ServerProbe extends CommonProbe {
  readonly settings?: (rig: Rig) => ServerChanges | Promise<ServerChanges>;
  /** It attacks constrained decoding: the bystander also sends requests with schemas. */
  readonly hasSchema?: boolean;
  /** The bars on the bystander do not apply, for example because it cannot connect during the attack. */
  readonly isBystanderExempt?: boolean;
  /** Sets up what the attack needs, before measuring starts. */
  prepare?(rig: Rig): Promise<void>;
  run(rig: Rig & { readonly server: HostileServer }): Promise<Outcome>;
}

/** Something that starts its own servers, or none, and has no bystander. */
export interface LoneProbe extends CommonProbe {
  runAlone(rig: Rig): Promise<Outcome>;
}

export type Probe = ServerProbe | LoneProbe;

/** Held where each reply is an answer or a named error. */
export function namedReplies(replies: readonly Reply[]): Outcome {
  return { attacker: summary(replies), isHeld: replies.length > 0 && replies.every(isNamed) };
}

/** The same for headers that are too long: the server may close the connection without an answer. */
export function namedOrClosed(replies: readonly Reply[]): Outcome {
  const answered = replies.filter(({ failure }) => failure !== "ECONNRESET");
  return { attacker: summary(replies), isHeld: answered.every(isNamed) };
}

/** The same for requests with long answers: those still running after `ms` are left out. */
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
