// Module of the child process in which a server runs the checks of `troupe doctor`. Started by inspector.ts.
import type { Diagnosis } from "../../runtime/host/system.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { CheckOptions } from "./checks.ts";
import { diagnose } from "./inspector.ts";

export function start({ init }: PlaceContext<CheckOptions>): Promise<Diagnosis> {
  return diagnose(init);
}
