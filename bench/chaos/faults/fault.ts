// Fault of a schedule: its action on the servers or on Redis, and the effects that clients may see.
import type { Dice } from "../../../test/fixtures/hostile/dice.ts";
import type { Effects, Ledger } from "../ledger.ts";
import type { ChaosRig } from "../rig/rig.ts";
import type { ChaosServer } from "../rig/server.ts";

export interface FaultTarget {
  readonly rig: ChaosRig;
  readonly server: ChaosServer;
  readonly dice: Dice;
  readonly ledger: Ledger;
  /**
   * Runs an action after all earlier actions on the same resource have ended. A resource is a server, a Redis link or the whole
   * rig (all servers).
   */
  alone(resource: object, action: () => Promise<void>): Promise<void>;
}

export interface Fault {
  readonly name: string;
  readonly effects: Effects;
  /** How often the fault is drawn, relative to the other faults. */
  readonly weight: number;
  /** Whether the fault is possible on this rig (group of servers), for example because the servers use Redis. */
  fits(rig: ChaosRig): boolean;
  /** Causes the fault and repairs it. */
  run(target: FaultTarget): Promise<void>;
}

/** Error codes that clients may get when a process or thread of the server ends and is restarted. */
export const partEnded = [
  "peer_gone",
  "model_failed",
  "model_loading",
  "timeout",
  "storage_unavailable",
  "cancelled",
  "draining",
] as const;
