// Fields that have the same description in several endpoints. docs/protocols.md describes them once: in a section of their own,
// or at the first endpoint if there are few.
import type { Field } from "./fields.ts";

type Fields = readonly Field[];

/** Top-level fields with their inner fields. Key: their JSON, ignoring `isRequired` of the top-level field. */
type Groups = ReadonlyMap<string, Fields>;

/** Minimum number of endpoints with the same field for a row in the section of shared fields. */
const MIN_ENDPOINTS = 3;

interface Body {
  /** Method and path. */
  readonly endpoint: string;
  readonly fields: Fields;
}

interface Split {
  /** Top-level fields in the section of shared fields, in its order. */
  readonly shared: Fields;
  /** Top-level fields that an earlier endpoint describes, by endpoint. */
  readonly earlier: ReadonlyMap<string, Fields>;
  /** Fields that only this endpoint describes, with their inner fields. */
  readonly own: Fields;
}

export class SharedFields {
  readonly #shared = new Map<string, Fields>();
  /** Endpoint that describes a field: the first one that has it, by the field's key. */
  readonly #firstOf = new Map<string, string>();

  constructor(bodies: readonly Body[]) {
    const endpoints = new Map<string, string[]>();
    for (const { endpoint, fields } of bodies) {
      for (const key of groupsOf(fields).keys()) endpoints.set(key, [...(endpoints.get(key) ?? []), endpoint]);
    }
    const groups = new Map(bodies.flatMap(({ fields }) => [...groupsOf(fields)]));
    const names = new Set<string>(); // a name has one meaning among the shared fields
    for (const [key, [first = "", ...others]] of endpoints) {
      const group = groups.get(key) ?? [];
      const name = outermost(group);
      this.#firstOf.set(key, first);
      if (others.length + 1 < MIN_ENDPOINTS || names.has(name)) continue;
      this.#shared.set(key, optional(group));
      names.add(name);
    }
  }

  /** All shared fields with their inner fields. */
  get fields(): Fields {
    return [...this.#shared.values()].flat();
  }

  split({ endpoint, fields }: Body): Split {
    const groups = groupsOf(fields);
    const shared = [...this.#shared.keys()].flatMap((key) => groups.get(key)?.slice(0, 1) ?? []);
    const earlier = new Map<string, Field[]>();
    const own: Field[] = [];
    for (const [key, group] of groups) {
      if (this.#shared.has(key)) continue;
      const first = this.#firstOf.get(key) ?? endpoint;
      if (first === endpoint) own.push(...group);
      else earlier.set(first, [...(earlier.get(first) ?? []), ...group.slice(0, 1)]);
    }
    return { shared, earlier, own };
  }
}

/**
 * Returns the top-level fields in `others` that `fields` lacks. Returns null if `fields` has a field that `others` lacks, or one
 * that is required only in one of them.
 */
export function missingFields(fields: Fields, others: Fields): Fields | null {
  const groups = groupsOf(fields);
  const known = groupsOf(others);
  const differs = ([key, [first]]: readonly [string, Fields]) => known.get(key)?.[0]?.isRequired !== first?.isRequired;
  if ([...groups].some(differs)) return null;
  return [...known].filter(([key]) => !groups.has(key)).flatMap(([, group]) => group.slice(0, 1));
}

function groupsOf(fields: Fields): Groups {
  const byName = new Map<string, Field[]>();
  for (const field of fields) {
    const name = nameIn(field);
    byName.set(name, [...(byName.get(name) ?? []), field]);
  }
  return new Map([...byName.values()].map((group) => [keyOf(group), group]));
}

function keyOf(group: Fields): string {
  return JSON.stringify(optional(group));
}

/** Returns the fields of a group as if the top-level field were not required: some endpoints may require it. */
function optional([first, ...inner]: Fields): Fields {
  return first === undefined ? [] : [{ ...first, isRequired: false }, ...inner];
}

function outermost([first]: Fields): string {
  return first === undefined ? "" : nameIn(first);
}

function nameIn({ path }: Field): string {
  return /^[^.[]*/.exec(path)?.[0] ?? "";
}
