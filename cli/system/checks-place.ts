// Owns what runs in the child process that a server has its checks run by; see inspector.ts, which starts it.
import type { Diagnosis } from "../../runtime/host/system.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { CheckOptions } from "./checks.ts";
import { diagnose } from "./inspector.ts";

export function start({ init }: PlaceContext<CheckOptions>): Promise<Diagnosis> {
  return diagnose(init);
}
