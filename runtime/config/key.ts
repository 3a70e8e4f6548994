// Owns what a configuration key is, and the kinds of value keys take. keys.ts writes the table with these; resolve.ts
// reads values through them. A kind knows how to check a value from a file and the same value as text from a flag.
import { z } from "zod";

export type Command = "serve" | "run" | "bench";

/** What a key takes: how it is checked, how that is said in a message, and how it looks in the help text. */
interface Kind<T = unknown> {
  readonly type: z.ZodType<T>;
  /** Completes "… expects". */
  readonly expects: string;
  /** Placeholder of the value in help; null for a switch. */
  readonly shows: string | null;
  /** Text of a flag or an environment variable as the value a file would hold; what cannot be read stays text. */
  readonly read: (text: string) => unknown;
}

export interface Key<T = unknown> extends Kind<T> {
  readonly default: unknown;
  /** Defaults that differ by command. */
  readonly defaultOf?: Partial<Record<Command, T>>;
  readonly help: string;
  /** Short flag. */
  readonly alias?: string;
  /** Environment variable that sets it: above the file, below the flag. */
  readonly environment?: string;
  /** The commands it means something to; its group's where absent. */
  readonly commands?: readonly Command[];
  /** Set in a file only: the flag of this name belongs to another group. */
  readonly fileOnly?: true;
  /** Values of the contract whose feature is not built: refused by name. */
  readonly planned?: readonly string[];
}

/** The resolved values of a group of keys. */
export type ValuesOf<K extends Record<string, Key>> = {
  readonly [N in keyof K]: z.infer<K[N]["type"]> | K[N]["default"];
};

const asIs = (text: string): unknown => text;
const asNumber = (text: string): unknown => (/^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text);
const asBoolean = (text: string): unknown => (text === "true" ? true : text === "false" ? false : text);

export function integer(minimum: number, maximum = Number.MAX_SAFE_INTEGER) {
  const range = maximum === Number.MAX_SAFE_INTEGER ? `, at least ${minimum}` : ` from ${minimum} to ${maximum}`;
  return { type: z.int().min(minimum).max(maximum), expects: `a whole number${range}`, shows: "N", read: asNumber };
}

/** The longest a timer takes; one set for longer fires at once. */
const maxTimerMs = 2 ** 31 - 1;

export function milliseconds(minimum: number) {
  return integer(minimum, maxTimerMs);
}

export function seconds(minimum: number) {
  return integer(minimum, Math.floor(maxTimerMs / 1000));
}

export function numberAbove(minimum: number) {
  return { type: z.number().gt(minimum), expects: `a number above ${minimum}`, shows: "X", read: asNumber };
}

/** Off unless given: as a flag it takes no value. */
export const flagSwitch = { type: z.boolean(), expects: "true or false", shows: null, read: asBoolean };

/** On unless switched off: as a flag it takes `true` or `false`. */
export const boolean = { ...flagSwitch, shows: "true|false" };

export function text(expects: string, shows: string) {
  return { type: z.string().min(1), expects, shows, read: asIs };
}

export function oneOf<const T extends string>(...values: readonly T[]) {
  // `isolate = true` in a file means the same as `isolate = "true"`.
  const type = z.preprocess((value) => (typeof value === "boolean" ? String(value) : value), z.enum(values));
  return { type, expects: `one of ${values.join(", ")}`, shows: values.join("|"), read: asIs };
}

/** Whole numbers separated by commas, `512,1024`; one number may stand alone. */
export function integers(minimum: number) {
  const list = z.preprocess(
    (value) => (typeof value === "string" ? value.split(",").map((part) => asNumber(part.trim())) : value),
    z.array(z.int().min(minimum)).min(1).readonly(),
  );
  return { type: list, expects: `whole numbers, at least ${minimum}, separated by commas`, shows: "N,…", read: asIs };
}

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
  read: asIs,
};
