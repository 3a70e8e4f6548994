// List of all probes, by topic.
import type { Probe } from "../probe.ts";
import { bodyProbes } from "./bodies.ts";
import { edgeProbes } from "./edge.ts";
import { faultProbes } from "./faults.ts";
import { grammarProbes } from "./grammars.ts";
import { slotProbes } from "./slots.ts";
import { storedProbes } from "./stored.ts";
import { textProbes } from "./text.ts";

export const probes: readonly Probe[] = [
  ...textProbes,
  ...grammarProbes,
  ...bodyProbes,
  ...storedProbes,
  ...slotProbes,
  ...edgeProbes,
  ...faultProbes,
];
