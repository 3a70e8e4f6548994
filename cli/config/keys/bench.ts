// Flags of the commands bench and tune. They cannot be set in a file. Part of the table in keys.ts.
import type { Key } from "../key.ts";
import { file, integer, integers, oneOf } from "../kinds.ts";

export const benchKeys = {
  promptLen: { ...integers(1), default: [512] as readonly number[], help: "Prompt lengths to measure, in tokens" },
  genLen: { ...integer(0), default: 128, help: "Number of tokens to generate" },
  depth: { ...integers(0), default: [4] as readonly number[], help: "Context lengths to generate from, in tokens" },
  iterations: { ...integer(1), default: 3, help: "Number of measured rounds" },
  warmup: { ...integer(0), default: 1, help: "Number of unmeasured rounds at the start" },
} as const satisfies Record<string, Key>;

export const tuneKeys = {
  profile: {
    ...oneOf(["quality", "balanced", "fast"]),
    default: "balanced",
    help: "Weight of quality against speed: the best quality that fits in memory, a balance, or the most tokens per second",
  },
  budget: { ...integer(1, 3600), default: 60, help: "Maximum time of the measurements, in seconds" },
  emitConfig: {
    ...file,
    default: null,
    help: "TOML file to write with the recommended settings, for from-config -f FILE",
  },
} as const satisfies Record<string, Key>;
