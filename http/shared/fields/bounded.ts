// Owns how large and deep a value of a client's own making may be where nothing else says so: a schema, a call's input. What
// is deeper could not be written as JSON again, nor be sent to another thread.

interface Bounds {
  readonly depth: number;
  readonly values: number;
}

const ofParts: Bounds = { depth: 64, values: 10_000 };
/** Of a schema for the whole answer: what the grammars take. */
export const ofWholeSchemas: Bounds = { depth: 100, values: 50_000 };

/** Without recursion: the value is a client's, and may be as deep as a body is long. */
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

/** For schemas: the message of a value that is not. */
export function tooLarge(what: string, bounds = ofParts): string {
  return `expected ${what} of at most ${bounds.values} values, nested at most ${bounds.depth} deep, got more`;
}
