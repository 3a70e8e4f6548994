// Owns the kind of value that says how much memory to take: in bytes with a unit, or in tokens. Used by the table of keys.
import { z } from "zod";

export type MemoryBudget = { readonly bytes: number } | { readonly tokens: number };

const bytesPerUnit: Readonly<Record<string, number>> = {
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
};

/** `4GiB`, `1.5GB` or `65536tokens`; null when it is neither. */
function readMemoryBudget(given: string): MemoryBudget | null {
  const [, amount = "", unit = ""] = /^(\d+(?:\.\d+)?)\s*([A-Za-z]+)$/.exec(given) ?? [];
  if (unit === "tokens") return /^[1-9]\d*$/.test(amount) ? { tokens: Number(amount) } : null;
  const bytes = Math.floor(Number(amount) * (bytesPerUnit[unit] ?? 0));
  return bytes > 0 && Number.isSafeInteger(bytes) ? { bytes } : null;
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
