// Bounds on the size and depth of free-form JSON values of clients: schemas, tool inputs. Deeper values could be neither
// serialised as JSON nor posted to another thread.

interface Bounds {
  readonly depth: number;
  readonly values: number;
}

const ofParts: Bounds = { depth: 64, values: 10_000 };
/** A schema for the whole output: the limits of the grammar compiler. */
export const ofWholeSchemas: Bounds = { depth: 100, values: 50_000 };

/** Without recursion: a client's value may be as deep as the body is long. */
export function isBounded(value: object, bounds = ofParts): boolean {
  let level: object[] = [value];
  let count = 0;
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > bounds.depth) return false;
    const next: object[] = [];
    for (const outer of level) {
      for (const inner of Object.values(outer)) {
        if (++count > bounds.values) return false;
        if (typeof inner === "object" && inner !== null) next.push(inner);
      }
    }
    level = next;
  }
  return true;
}

/** The error message for a value out of bounds. */
export function tooLarge(what: string, bounds = ofParts): string {
  return `expected ${what} of at most ${bounds.values} values, nested at most ${bounds.depth} deep, got more`;
}
