// Owns the bound on how long one translation may take on the agents' thread: counted in units of work, so that the same grammar
// is always taken or always refused. A translation is synchronous, so there is one at a time.

export class TooMuchWork extends Error {}

let unitsLeft = Number.POSITIVE_INFINITY;

/** Some quarter of a second. */
const unitsOfOne = 600_000;

/** Runs a translation, or a part of one; throws TooMuchWork where it takes too much of it. */
export function bounded<Result>(translate: () => Result): Result {
  const outer = unitsLeft;
  const granted = Math.min(outer, unitsOfOne);
  unitsLeft = granted;
  try {
    return translate();
  } finally {
    unitsLeft = outer - (granted - unitsLeft);
  }
}

/** To be called by whatever loops, with about as many units as it has looked at things. */
export function spend(units: number): void {
  unitsLeft -= units;
  if (unitsLeft < 0) throw new TooMuchWork("it takes too much work to be translated; make it simpler");
}
