// Comparison of JSON values in a schema (const, enum). Equal values have the same canonical text. The canonical texts
// of arrays and objects are cached. For a list of values, the set of its canonical texts is cached. No side effects.
import { spend, spendOn } from "../../../../runtime/regex/work.ts";

const texts = new WeakMap<object, string>();
const sets = new WeakMap<readonly unknown[], ReadonlySet<string>>();

/** Returns the canonical text, which is the same for equal values. */
export function canonical(value: unknown): string {
  if (typeof value !== "object" || value === null) {
    if (typeof value === "string") spendOn(value.length);
    return JSON.stringify(value);
  }
  const known = texts.get(value);
  if (known !== undefined) return known;
  const text = Array.isArray(value) ? `[${value.map(canonical).join()}]` : `{${members(value).join()}}`;
  spendOn(text.length);
  texts.set(value, text);
  return text;
}

function members(value: object): string[] {
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return entries.map(([key, inner]) => `${JSON.stringify(key)}:${canonical(inner)}`);
}

/** True if the list contains the value. The list must not change, because its values are cached. */
export function has(list: readonly unknown[], value: unknown): boolean {
  return list.length > 0 && setOf(list).has(canonical(value));
}

export function common(a: readonly unknown[], b: readonly unknown[]): readonly unknown[] {
  spend(a.length / 2);
  return a.filter((value) => has(b, value));
}

function setOf(list: readonly unknown[]): ReadonlySet<string> {
  const known = sets.get(list);
  if (known !== undefined) return known;
  spend(list.length);
  const set = new Set(list.map(canonical));
  sets.set(list, set);
  return set;
}
