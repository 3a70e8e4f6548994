// Flags of the bench command. They cannot be set in a file. Part of the table in keys.ts.
import type { Key } from "../key.ts";
import { integer, integers } from "../kinds.ts";

export const benchKeys = {
  promptLen: { ...integers(1), default: [512] as readonly number[], help: "Prompt lengths to measure, in tokens" },
  genLen: { ...integer(0), default: 128, help: "Number of tokens to generate" },
  depth: { ...integers(0), default: [4] as readonly number[], help: "Context lengths to generate from, in tokens" },
  iterations: { ...integer(1), default: 3, help: "Number of measured rounds" },
  warmup: { ...integer(0), default: 1, help: "Number of unmeasured rounds at the start" },
} as const satisfies Record<string, Key>;
