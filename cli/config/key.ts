// Owns what a configuration key is: how its value is checked, what it means when absent, and how much of it is built. The
// table in keys.ts is made of these; what kinds of value there are is kinds.ts's. It knows no key by name.
import type { z } from "zod";

export type Command = "serve" | "run" | "bench";

/** What a key takes: how it is checked, how that is said in a message, and how it looks in the help text. */
export interface Kind<T = unknown> {
  readonly type: z.ZodType<T>;
  /** Completes "… expects". */
  readonly expects: string;
  /** Placeholder of the value in help; null for a switch. */
  readonly shows: string | null;
  /** Text of a flag or an environment variable as the value a file would hold; what cannot be read stays text. */
  readonly read: (text: string) => unknown;
  /** What the flag means without a value, where it may stand alone. */
  readonly alone?: string;
}

export interface Key<T = unknown> extends Kind<T> {
  readonly default: unknown;
  /** Defaults that differ by command. */
  readonly defaultOf?: Partial<Record<Command, T>>;
  /** Says what the default is where a value cannot, such as one that depends on the machine. */
  readonly defaultSays?: string;
  readonly help: string;
  /** Its flag, where that is not its name with dashes. */
  readonly flag?: string;
  /** Short flag. */
  readonly alias?: string;
  /** Names it has besides its own, in a file and, with dashes, as a flag. */
  readonly otherNames?: readonly string[];
  /** Environment variable that sets it: above the file, below the flag. */
  readonly environment?: string;
  /** Where that variable is set and empty it is a wrong value; else it is as if it were not set. */
  readonly refusesEmpty?: true;
  /** The commands it means something to; its group's where absent. */
  readonly commands?: readonly Command[];
  /** The only place it can be set: the flag of a key for files alone belongs to another group. */
  readonly only?: "file" | "environment";
  /** The flag may be given several times. */
  readonly repeats?: true;
  /** Further values may follow the flag's first; this tells them from other words. */
  readonly follows?: RegExp;
  /** No message may quote its value. */
  readonly secret?: true;
  /** A key of the contract whose feature is not built: it is checked like any other, and then refused. */
  readonly planned?: true;
  /** Of a planned key that will not be built: why, as a person who sets it is told. */
  readonly never?: string;
  /** Of a planned key: the values that say what the server does anyway, and so are accepted. */
  readonly holds?: readonly unknown[];
  /** Of a built key: values of the contract that are not built. */
  readonly plannedValues?: readonly string[];
}

/** Marks a key as planned; see Key. */
export function planned<const T extends readonly unknown[]>(...holds: T) {
  return { planned: true, holds } as const;
}

/** Marks a key as one that will not be built; see Key. */
export function neverBuilt<const T extends readonly unknown[]>(never: string, ...holds: T) {
  return { ...planned(...holds), never } as const;
}

/** The resolved values of a group of keys. Planned keys have none, so that no code can read them. */
export type ValuesOf<K extends Record<string, Key>> = {
  readonly [N in keyof K as K[N] extends { readonly planned: true } ? never : N]:
    | z.infer<K[N]["type"]>
    | K[N]["default"];
};
