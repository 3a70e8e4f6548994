// Output limit of a request: the maximum number of output tokens, which has several names.
import type { GenerateRequest } from "../../../engines/generation.ts";
import { type Conflict, differing } from "./conflicts.ts";

/** Value of `n_predict` for no limit. */
const UNLIMITED = -1;

type Limits<Name extends string> = Readonly<Partial<Record<Name, number | null | undefined>>>;

/** Returns the limit, and the names of the fields of the request. `names`: the names of the limit, the usual one first. */
export function outputLimit<const Name extends string>(
  body: Limits<Name>,
  prompt: string,
  names: readonly [Name, ...Name[]],
): Pick<GenerateRequest, "maxTokens" | "fields"> {
  const sent = names.find((name) => isGiven(body[name]));
  const limit = (sent === undefined ? null : body[sent]) ?? UNLIMITED;
  return {
    maxTokens: limit === UNLIMITED ? null : limit,
    fields: { prompt, maxTokens: sent ?? names[0] },
  };
}

/** Yields the conflicts of names with different values. */
export function* limitConflicts<const Name extends string>(
  body: Limits<Name>,
  names: readonly [Name, ...Name[]],
): Iterable<Conflict> {
  const [first, ...others] = names.filter((name) => isGiven(body[name]));
  if (first === undefined) return;
  for (const other of others) yield* differing<number | null | undefined>(other, body[other], first, body[first]);
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}
