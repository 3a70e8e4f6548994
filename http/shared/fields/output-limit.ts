// Output limits of a request: the minimum number of output tokens, and the maximum, which has several field names.
import type { GenerateRequest } from "../../../engines/generation.ts";
import { type Conflict, differing } from "./conflicts.ts";

/** Value of `n_predict` that means "no limit". */
const UNLIMITED = -1;

type Limits<Name extends string> = Readonly<Partial<Record<Name | "min_tokens", number | null | undefined>>>;

/**
 * Returns the limits, and the field names to use in error messages. `names`: field names of the maximum, the usual name first.
 */
export function outputLimit<const Name extends string>(
  body: Limits<Name>,
  prompt: string,
  names: readonly [Name, ...Name[]],
): Pick<GenerateRequest, "minTokens" | "maxTokens" | "fields"> {
  const sent = names.find((name) => isGiven(body[name]));
  const limit = (sent === undefined ? null : body[sent]) ?? UNLIMITED;
  return {
    minTokens: body.min_tokens ?? 0,
    maxTokens: limit === UNLIMITED ? null : limit,
    fields: { prompt, maxTokens: sent ?? names[0] },
  };
}

/** Yields a conflict if several names of the maximum have different values, or if the minimum exceeds the maximum. */
export function* limitConflicts<const Name extends string>(
  body: Limits<Name>,
  names: readonly [Name, ...Name[]],
): Iterable<Conflict> {
  const [first, ...others] = names.filter((name) => isGiven(body[name]));
  if (first === undefined) return;
  for (const other of others) yield* differing<number | null | undefined>(other, body[other], first, body[first]);
  const most = body[first] ?? UNLIMITED;
  if (most !== UNLIMITED && (body.min_tokens ?? 0) > most) {
    yield ["min_tokens", `expected at most ${first} (${most}), got ${body.min_tokens}`];
  }
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}
