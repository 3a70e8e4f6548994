// Type of a configuration key: how its value is checked, its default, and whether it is implemented. keys.ts is a table of such
// keys; kinds.ts defines the kinds of values.
import type { z } from "zod";

export type Command = "serve" | "run" | "bench" | "tune";

/** Kind of a key's value: its schema, its description in messages, and its placeholder in the help text. */
export interface Kind<T = unknown> {
  readonly type: z.ZodType<T>;
  /** Description of valid values; it completes the message "… expects". */
  readonly expects: string;
  /** Placeholder of the value in the help text; null for a switch. */
  readonly shows: string | null;
  /**
   * Converts the text of a flag or variable to the value that a file would contain. Text that cannot be converted is returned
   * unchanged.
   */
  readonly read: (text: string) => unknown;
  /** Value of the flag if it is given without a value; if absent, the flag requires a value. */
  readonly alone?: string;
}

export interface Key<T = unknown> extends Kind<T> {
  readonly default: unknown;
  /** Defaults of individual commands, if they differ from `default`. */
  readonly defaultOf?: Partial<Record<Command, T>>;
  /** Description of the default in Markdown, for a default that depends on the machine or needs a unit. */
  readonly defaultSays?: string;
  readonly help: string;
  /** Long flag; if absent, the key's name with dashes. */
  readonly flag?: string;
  /** Short flag. */
  readonly alias?: string;
  /** Additional names of the key in a file and, with dashes, as flags. */
  readonly otherNames?: readonly string[];
  /** Environment variable that sets the key, in addition to the one with the prefix TROUPE_. */
  readonly environment?: string;
  /** Whether an empty variable is an error; absent: an empty variable counts as unset. */
  readonly refusesEmpty?: true;
  /** Commands that accept the key; if absent, the commands of its group. */
  readonly commands?: readonly Command[];
  /** The only source from which the key can be set; if absent, it can be set from all sources. */
  readonly only?: "file" | "environment";
  /** Set if the short help (`--help` without `--all`) shows the flag. */
  readonly everyday?: true;
  /** Whether the flag may be given several times. */
  readonly repeats?: true;
  /** Pattern of further values that may follow the first value of a flag; if absent, a flag has one value. */
  readonly follows?: RegExp;
  /** Set if messages must not quote the value. */
  readonly secret?: true;
  /** Set if the key is specified but its feature is not implemented. The value is checked, then rejected. */
  readonly planned?: true;
  /** Why a planned key will never be implemented; used in the error message. */
  readonly never?: string;
  /** Values of a planned key that are accepted, because they describe how the server behaves without the feature. */
  readonly holds?: readonly unknown[];
  /** Values that are specified but not implemented, of a key that is implemented. */
  readonly plannedValues?: readonly string[];
}

/** Returns the properties of a key that will never be implemented. For `never` and `holds`, see Key. */
export function neverBuilt<const T extends readonly unknown[]>(never: string, ...holds: T) {
  return { planned: true, holds, never } as const;
}

/** Resolved values of a group of keys. Planned keys are excluded, so no code can read them. */
export type ValuesOf<K extends Record<string, Key>> = {
  readonly [N in keyof K as K[N] extends { readonly planned: true } ? never : N]:
    | z.infer<K[N]["type"]>
    | K[N]["default"];
};
