// Shared fields: fields that have the same description in several endpoints. docs/protocols.md lists them once.
import type { Field } from "./fields.ts";

type Fields = readonly Field[];

export class SharedFields {
  /** Shared top-level fields, each with its nested fields. The key is the JSON of their descriptions. */
  readonly #groups = new Map<string, Fields>();

  constructor(bodies: readonly Fields[]) {
    const seen = new Set<string>();
    for (const [key, group] of bodies.flatMap((fields) => [...groupsOf(fields)])) {
      if (seen.has(key)) this.#groups.set(key, group);
      seen.add(key);
    }
  }

  get fields(): Fields {
    return [...this.#groups.values()].flat();
  }

  /** Splits the fields of a body into the names of the shared fields and the fields that only this body has. */
  split(fields: Fields): { readonly shared: readonly string[]; readonly own: Fields } {
    const groups = [...groupsOf(fields)];
    const shared = groups.filter(([key]) => this.#groups.has(key)).map(([, group]) => outermost(group));
    return { shared, own: groups.flatMap(([key, group]) => (this.#groups.has(key) ? [] : group)) };
  }
}

/**
 * Returns the names of the top-level fields in `others` that `fields` lacks. Returns null if `fields` has a field that `others`
 * lacks.
 */
export function missingFields(fields: Fields, others: Fields): readonly string[] | null {
  const groups = groupsOf(fields);
  const known = groupsOf(others);
  if ([...groups.keys()].some((key) => !known.has(key))) return null;
  return [...known].filter(([key]) => !groups.has(key)).map(([, group]) => outermost(group));
}

function groupsOf(fields: Fields): ReadonlyMap<string, Fields> {
  const byName = new Map<string, Field[]>();
  for (const field of fields) {
    const name = nameIn(field);
    byName.set(name, [...(byName.get(name) ?? []), field]);
  }
  return new Map([...byName.values()].map((group) => [JSON.stringify(group), group]));
}

function outermost([first]: Fields): string {
  return first === undefined ? "" : nameIn(first);
}

function nameIn({ path }: Field): string {
  return /^[^.[]*/.exec(path)?.[0] ?? "";
}
