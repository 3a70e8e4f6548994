// Kinds of values for amounts of memory or disk space: bytes with a unit, or tokens of KV cache. Used by the table of keys.
import { z } from "zod";

export type MemoryBudget = { readonly bytes: number } | { readonly tokens: number };

/**
 * Number of bytes per unit; the unit is in lower case. A single letter is a binary unit, as in other programs (`4G` is 4 GiB).
 */
const bytesPerUnit: Readonly<Record<string, number>> = {
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
  k: 2 ** 10,
  m: 2 ** 20,
  g: 2 ** 30,
  t: 2 ** 40,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
};

/** Reads `4GiB`, `1.5GB` or `65536tokens`; null if the text has none of these forms. */
function readMemoryBudget(given: string): MemoryBudget | null {
  const [, tokens] = /^([1-9]\d*)\s*tokens$/.exec(given) ?? [];
  if (tokens !== undefined) return { tokens: Number(tokens) };
  const bytes = readBytes(given);
  return bytes === null || bytes === 0 ? null : { bytes };
}

/** Reads `4GiB` or `1.5GB`; null if the text has neither form. */
function readBytes(given: string): number | null {
  const [, amount = "", unit = ""] = /^(\d+(?:\.\d+)?)\s*([A-Za-z]+)$/.exec(given) ?? [];
  const scale = Object.hasOwn(bytesPerUnit, unit.toLowerCase()) ? bytesPerUnit[unit.toLowerCase()] : undefined;
  if (scale === undefined) return null;
  const bytes = Math.floor(Number(amount) * scale);
  return Number.isSafeInteger(bytes) ? bytes : null;
}

export const memoryBudget = {
  type: z.string().transform((given, context): MemoryBudget => {
    const budget = readMemoryBudget(given);
    if (budget !== null) return budget;
    context.addIssue("not an amount of memory");
    return z.NEVER;
  }),
  expects: "an amount of memory such as 4GiB or 65536tokens",
  shows: "4GiB|65536tokens",
  read: (text: string): unknown => text,
};

/** Returns the kind for a number of bytes: a number with a unit, or a plain number of bytes. */
export function byteSize(minimum: number, maximum = Number.MAX_SAFE_INTEGER) {
  const type = z.preprocess(
    (value) => (typeof value === "string" ? (readBytes(value) ?? value) : value),
    z.int().min(minimum).max(maximum),
  );
  const orNone = minimum === 0 ? ", or 0" : "";
  const isLimited = maximum < Number.MAX_SAFE_INTEGER;
  const mib = `${maximum / 2 ** 20}MiB`;
  return {
    type,
    expects: `an amount of bytes ${isLimited ? `of ${minimum} to ${mib}` : "such as 512MiB or 4GiB"}${orNone}`,
    shows: isLimited ? mib : "4GiB",
    read: (text: string): unknown => (/^\d+$/.test(text) ? Number(text) : text),
  };
}
