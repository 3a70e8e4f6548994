// Probe: one attack, on a server of its own, and how the attacker fared. What it costs everybody else is measured around it
// (measure.ts).
import { setTimeout as sleep } from "node:timers/promises";
import type { EngineName } from "../../engines/engine.ts";
import type { EdgeName } from "../../http/listen.ts";
import { isNamed, type Reply, summary } from "./client.ts";
import type { Rig } from "./rig.ts";
import type { HostileServer, ServerSettings } from "./server.ts";

export interface Outcome {
  /** What became of the attacker, in words. */
  readonly attacker: string;
  /** Whether the server did by the attacker as it should. */
  readonly isHeld: boolean;
}

/** What a probe changes in the usual server. */
export type ServerChanges = Partial<
  Pick<ServerSettings, "models" | "flags" | "nodeFlags" | "wrapper" | "hasAccessLog">
>;

interface CommonProbe {
  readonly name: string;
  /** Number in the list of findings. */
  readonly finding: number;
  /** Whether the edge or the engine matters; else it is run on the first of them alone. */
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
  /** It concerns constrained decoding: the bystander asks for schemas too. */
  readonly hasSchema?: boolean;
  /** What of the bystander's bars makes no sense here: it cannot connect while the attack goes on, say. */
  readonly isBystanderExempt?: boolean;
  /** What the attack needs to be there, and is no part of it. */
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

/** The same of headers that are too long, for which a connection may be closed without a word. */
export function namedOrClosed(replies: readonly Reply[]): Outcome {
  const answered = replies.filter(({ failure }) => failure !== "ECONNRESET");
  return { attacker: summary(replies), isHeld: answered.every(isNamed) };
}

/** The same of requests whose answers may take longer: after so long, what is still running is left out. */
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
