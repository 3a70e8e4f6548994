// Work limit of one translation, for example of a JSON schema to a grammar. Work is counted in units, not in time, so that the
// same grammar is always accepted or always rejected. A separate time limit protects slow or loaded machines. A translation is
// synchronous, so only one runs at a time.

export class TooMuchWork extends Error {}

/** Thrown if a translation exceeds the time limit. A faster machine may accept the same grammar. */
export class OutOfTime extends TooMuchWork {}

/**
 * Maximum number of units of one translation: about 0.2 s. A unit is an object created, compared or stored.
 * Usual schemas take up to 40,000.
 */
export const unitsOfTranslation = 200_000;
/** Number of characters, or of elements copied or scanned in plain loops, that count as one unit. */
const elementsOfUnit = 16;
/** Time limit of one translation in ms. The unit limit ends it earlier, unless the machine is overloaded. */
const maxMs = 4000;
/** Number of units between two checks of the clock. */
const unitsOfLook = 5000;

let unitsLeft = Number.POSITIVE_INFINITY;
let unitsAtLook = 0;
let deadline = Number.POSITIVE_INFINITY;

/** Runs a translation, or a part of one. Throws TooMuchWork above `units` or the time limit. */
export function bounded<Result>(translate: () => Result, units = unitsOfTranslation): Result {
  const outer = unitsLeft;
  const outerDeadline = deadline;
  const granted = Math.min(outer, units);
  unitsLeft = granted;
  unitsAtLook = granted - unitsOfLook;
  deadline = Math.min(outerDeadline, performance.now() + maxMs);
  try {
    return translate();
  } finally {
    unitsLeft = outer - (granted - unitsLeft);
    unitsAtLook = unitsLeft - unitsOfLook;
    deadline = outerDeadline;
  }
}

/**
 * Creates a value that is cached permanently. Its work is not counted, because the units of a grammar must not depend on what
 * earlier grammars have put into the cache.
 */
export function unmetered<Result>(make: () => Result): Result {
  const left = unitsLeft;
  unitsLeft = Number.POSITIVE_INFINITY;
  try {
    return make();
  } finally {
    unitsLeft = left;
  }
}

/** Counts work: one unit for each object created, compared or stored. Every loop must call it. Throws TooMuchWork. */
export function spend(units: number): void {
  unitsLeft -= units;
  if (unitsLeft >= unitsAtLook) return;
  if (unitsLeft < 0) throw new TooMuchWork("it takes too much work to translate; make it simpler");
  unitsAtLook = unitsLeft - unitsOfLook;
  if (performance.now() > deadline) {
    throw new OutOfTime(`it takes more than ${maxMs / 1000} s to translate; make it simpler, or try again`);
  }
}

/** Counts work on elements of plain lists, or on characters. Each costs only a fraction of a unit. */
export function spendOn(elements: number): void {
  spend(elements / elementsOfUnit);
}
