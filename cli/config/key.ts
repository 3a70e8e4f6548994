// Type of a configuration key: how its value is checked, its default, and whether it is built. keys.ts is a table of these;
// kinds.ts has the kinds of values.
import type { z } from "zod";

export type Command = "serve" | "run" | "bench";

/** Kind of a key's value: its check, its description in messages, and its placeholder in the help text. */
export interface Kind<T = unknown> {
  readonly type: z.ZodType<T>;
  /** Completes "… expects". */
  readonly expects: string;
  /** Placeholder of the value in help; null for a switch. */
  readonly shows: string | null;
  /** Converts the text of a flag or variable to the value a file would have; text that cannot be converted stays text. */
  readonly read: (text: string) => unknown;
  /** Value of the flag without a value; absent: a value is required. */
  readonly alone?: string;
}

export interface Key<T = unknown> extends Kind<T> {
  readonly default: unknown;
  /** Defaults that differ by command. */
  readonly defaultOf?: Partial<Record<Command, T>>;
  /** Description of the default, in Markdown, if the value does not say it: it depends on the machine, or needs a unit. */
  readonly defaultSays?: string;
  readonly help: string;
  /** Long flag; absent: the name with dashes. */
  readonly flag?: string;
  /** Short flag. */
  readonly alias?: string;
  /** Further names in a file and, with dashes, as flags. */
  readonly otherNames?: readonly string[];
  /** Environment variable that sets it: above the file, below the flag. */
  readonly environment?: string;
  /** An empty variable is an error; absent: it counts as unset. */
  readonly refusesEmpty?: true;
  /** Commands that accept it; absent: those of its group. */
  readonly commands?: readonly Command[];
  /** The only source it can be set from; absent: all. */
  readonly only?: "file" | "environment";
  /** The flag may be given several times. */
  readonly repeats?: true;
  /** Pattern of further values after the first one; absent: one value per flag. */
  readonly follows?: RegExp;
  /** Messages must not quote its value. */
  readonly secret?: true;
  /** The feature is in the contract but not built: the value is checked, then refused. */
  readonly planned?: true;
  /** Reason why a planned key will never be built, for the error message. */
  readonly never?: string;
  /** Values of a planned key that describe what the server does anyway; they are accepted. */
  readonly holds?: readonly unknown[];
  /** Values of a built key that are in the contract but not built. */
  readonly plannedValues?: readonly string[];
}

/** Marks a key as planned; see Key. */
export function planned<const T extends readonly unknown[]>(...holds: T) {
  return { planned: true, holds } as const;
}

/** Marks a key that will never be built; see Key. */
export function neverBuilt<const T extends readonly unknown[]>(never: string, ...holds: T) {
  return { ...planned(...holds), never } as const;
}

/** Resolved values of a group of keys. Planned keys are excluded, so no code can read them. */
export type ValuesOf<K extends Record<string, Key>> = {
  readonly [N in keyof K as K[N] extends { readonly planned: true } ? never : N]:
    | z.infer<K[N]["type"]>
    | K[N]["default"];
};
