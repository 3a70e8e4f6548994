// Qwen2-VL and Qwen2.5-VL: qwen2 with a rope in three dimensions (M-RoPE). The rotated pairs are divided into three sections, which are
// rotated by a token's time, row and column. For text tokens, all three are the token's position.
import type { Keys } from "../keys.ts";
import type { CommonShape } from "../shape.ts";
import type { Architecture } from "./architecture.ts";
import { qwen2 } from "./qwen2.ts";

export const qwen2vl: Architecture = {
  ...qwen2,
  name: "qwen2vl",
  readTraits: (keys, shape) => ({ rope: { axes: consecutiveAxes(readSections(keys, shape)) } }),
};

/** Number of rotated pairs in each section: time, row and column. */
export type Sections = readonly [time: number, rows: number, columns: number];

/** Returns the coordinate that rotates each pair. */
function consecutiveAxes([time, rows, columns]: Sections): Uint8Array {
  return Uint8Array.from({ length: time + rows + columns }, (_, pair) => {
    if (pair < time) return 0;
    return pair < time + rows ? 1 : 2;
  });
}

/** Reads the number of pairs in each section. A fourth section must be empty. */
export function readSections(keys: Keys, { rotated }: Pick<CommonShape, "rotated">): Sections {
  const key = "rope.dimension_sections";
  const sections = keys.value(key);
  const isCount = (one: unknown): one is number => typeof one === "number" && Number.isInteger(one) && one >= 0;
  const pairs = rotated / 2;
  if (!Array.isArray(sections) || sections.length < 3 || sections.length > 4 || !sections.every(isCount)) {
    throw keys.invalid(key, "three or four whole numbers");
  }
  const [time, rows, columns, other = 0] = sections as [number, number, number, number?];
  if (other !== 0 || time + rows + columns !== pairs) throw keys.unsupported(key, `three sections of ${pairs} pairs`);
  return [time, rows, columns];
}
