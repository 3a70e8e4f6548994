// Limits on the size and nesting depth of arbitrary JSON values from clients, such as schemas and tool inputs. Values that are
// nested too deeply can neither be serialised as JSON nor be sent to another thread.

interface Bounds {
  readonly depth: number;
  readonly values: number;
}

const ofParts: Bounds = { depth: 64, values: 10_000 };
/** Limits of a JSON schema for the complete output; the same as in the grammar compiler. */
export const ofWholeSchemas: Bounds = { depth: 100, values: 50_000 };

/**
 * Returns whether a value is within the limits. The check is not recursive, because very deep nesting would overflow the stack.
 */
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

/** Returns the error message for a value that exceeds the limits. */
export function tooLarge(what: string, bounds = ofParts): string {
  return `expected ${what} of at most ${bounds.values} values, nested at most ${bounds.depth} deep, got more`;
}
