// Owns the flags of the bench command, which have no place in a file. Part of the table in keys.ts.
import type { Key } from "../key.ts";
import { flagSwitch, integer, integers } from "../kinds.ts";

export const benchKeys = {
  promptLen: { ...integers(1), default: [512] as readonly number[], help: "Prompt lengths to measure" },
  genLen: { ...integer(0), default: 128, help: "Tokens to generate" },
  depth: { ...integers(0), default: [4] as readonly number[], help: "Tokens already in the context before generating" },
  iterations: { ...integer(1), default: 3, help: "Measured rounds" },
  warmup: { ...integer(0), default: 1, help: "Rounds before the measured ones" },
  json: { ...flagSwitch, default: false, help: "Print JSON instead of a table" },
} as const satisfies Record<string, Key>;
