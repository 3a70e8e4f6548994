// Operation: what a client of the chaos suite does, and what it is given for that.
import type { Dice } from "../../../test/fixtures/hostile/dice.ts";
import type { Call, Ending } from "../client.ts";
import type { Ledger } from "../ledger.ts";
import type { ChaosServer } from "../rig/server.ts";
import type { References } from "./texts.ts";

/** What all operations of a rig share. */
export interface SharedWork {
  readonly references: References;
  readonly embeddings: Map<string, string>;
}

export interface Work {
  /** Name of the operation in reports. */
  readonly what: string;
  readonly server: ChaosServer;
  readonly dice: Dice;
  readonly ledger: Ledger;
  readonly references: References;
  readonly shared: SharedWork;
  /** Time within which every answer ends. */
  readonly limitMs: number;
  /** Picks any server. */
  others(): ChaosServer;
  /** Waits for the end of an answer. An answer without an end is a broken promise. */
  ended(call: Call, limitMs?: number): Promise<Ending>;
}

export type Operation = (work: Work) => Promise<void>;
