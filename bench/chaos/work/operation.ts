// Operation: one action of a client of the chaos suite, such as a chat, with the data that it needs.
import type { Dice } from "../../../test/fixtures/hostile/dice.ts";
import type { Call, Ending } from "../client.ts";
import type { Ledger } from "../ledger.ts";
import type { ChaosServer } from "../rig/server.ts";
import type { References } from "./texts.ts";

/** Data that all operations on the same group of servers share. */
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
  /** Time limit in ms for the end of a response. */
  readonly limitMs: number;
  /** Picks a random server of the group. It may be `server` itself. */
  others(): ChaosServer;
  /** Waits for the end of a response. A response that does not end within the limit is a violation. */
  ended(call: Call, limitMs?: number): Promise<Ending>;
}

export type Operation = (work: Work) => Promise<void>;
