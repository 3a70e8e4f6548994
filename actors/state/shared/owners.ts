// Owners: determines whether the server that generates a response is still running. Servers that share a folder run on one
// machine and are identified by their processes. Replicas that share a Redis store are identified by leases
// (runtime/store/redis/replica-lease.ts).
import { isAlive, ownIdentity } from "../../../runtime/host/process-identity.ts";
import type { Reading } from "../../../runtime/store/store.ts";

export interface Owners {
  /** Identity of this server. */
  readonly own: string;
  isAlive(identity: string): Reading<boolean>;
}

export function processOwners(): Owners {
  return { own: ownIdentity(), isAlive };
}
