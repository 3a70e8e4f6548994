// The limit on the work of one translation. Work is counted in units, so that the same grammar is always accepted or always
// refused; a time limit backs the count up on a machine that is slow or loaded. A translation is synchronous, so there is one
// at a time.

export class TooMuchWork extends Error {}

/** The clock has ended a translation, not the count: the same one may be made on a machine that has more time. */
export class OutOfTime extends TooMuchWork {}

/** Some 0.2 s: a unit is an object made, compared or remembered. Usual schemas take up to 40,000. */
export const unitsOfTranslation = 200_000;
/** Elements copied or scanned in plain loops, and characters, that make a unit. */
const elementsOfUnit = 16;
/** Time limit of one translation. The units end it earlier, unless the machine is overloaded. */
const maxMs = 4000;
/** Units between two looks at the clock. */
const unitsOfLook = 5000;

let unitsLeft = Number.POSITIVE_INFINITY;
let unitsAtLook = 0;
let deadline = Number.POSITIVE_INFINITY;

/** Runs a translation, or a part of one; throws TooMuchWork where it takes more than `units`, or too long. */
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

/** Makes a value that is cached for ever without counting its work: a grammar's units must not depend on earlier grammars. */
export function unmetered<Result>(make: () => Result): Result {
  const left = unitsLeft;
  unitsLeft = Number.POSITIVE_INFINITY;
  try {
    return make();
  } finally {
    unitsLeft = left;
  }
}

/** Counts work: one unit for each object made, compared or remembered. Every loop must call it. */
export function spend(units: number): void {
  unitsLeft -= units;
  if (unitsLeft >= unitsAtLook) return;
  if (unitsLeft < 0) throw new TooMuchWork("it takes too much work to translate; make it simpler");
  unitsAtLook = unitsLeft - unitsOfLook;
  if (performance.now() > deadline) {
    throw new OutOfTime(`it takes more than ${maxMs / 1000} s to translate; make it simpler, or try again`);
  }
}

/** The same of elements of plain lists and of characters, which cost less each. */
export function spendOn(elements: number): void {
  spend(elements / elementsOfUnit);
}
