// Fault of a schedule: what it does to a rig, for how long, and how it may affect clients.
import type { Dice } from "../../../test/fixtures/hostile/dice.ts";
import type { Effects, Ledger } from "../ledger.ts";
import type { ChaosRig } from "../rig/rig.ts";
import type { ChaosServer } from "../rig/server.ts";

export interface FaultTarget {
  readonly rig: ChaosRig;
  readonly server: ChaosServer;
  readonly dice: Dice;
  readonly ledger: Ledger;
  /** Runs an action alone among the actions of the same server, or of Redis. */
  alone(resource: object, action: () => Promise<void>): Promise<void>;
}

export interface Fault {
  readonly name: string;
  readonly effects: Effects;
  /** How often it is drawn, relative to the others. */
  readonly weight: number;
  /** Whether the rig has what the fault harms. */
  fits(rig: ChaosRig): boolean;
  /** Causes the fault and heals it. */
  run(target: FaultTarget): Promise<void>;
}

/** Codes of a part of the server that ends and is started again. */
export const partEnded = [
  "peer_gone",
  "model_failed",
  "model_loading",
  "timeout",
  "storage_unavailable",
  "cancelled",
  "draining",
] as const;
