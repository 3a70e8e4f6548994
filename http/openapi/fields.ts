// Fields of a request as a flat list, read from its JSON schema in the API document: path, types, default, and whether the
// field is supported, ignored or rejected. Used only to write docs/protocols.md.
import type { ApiDocument } from "./document.ts";

export type Support = "supported" | "ignored" | "refused";

export interface Field {
  /** Path of the field, for example `messages[].content[].text`. */
  readonly path: string;
  /** Accepted types: names of JSON types with their bounds, or literals as Markdown code. */
  readonly types: readonly string[];
  /** Default as JSON text; null: the schema has no default. */
  readonly default: string | null;
  readonly isRequired: boolean;
  readonly support: Support;
  readonly description: string;
}

/** JSON Schema keywords that this module reads. */
export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly description?: string;
  readonly default?: unknown;
  readonly "x-support"?: Support;
}

/** Maximum nesting of objects and arrays; limited because a schema may contain itself. */
const MAX_DEPTH = 6;

/** Returns the fields of a body. A field that occurs in several variants of an object is listed once. */
export function fieldsOf(document: ApiDocument, schema: Schema): readonly Field[] {
  const fields = new Map<string, Field>();
  const components = (document.components?.schemas ?? {}) as Readonly<Record<string, Schema>>;
  for (const field of walk(schema, "", components, 0)) {
    const key = `${field.path} ${field.support} ${field.support === "supported" ? "" : field.description}`;
    const known = fields.get(key);
    fields.set(key, known === undefined ? field : merged(known, field));
  }
  return [...fields.values()];
}

type Components = Readonly<Record<string, Schema>>;

function* walk(schema: Schema, path: string, components: Components, depth: number): Iterable<Field> {
  if (depth > MAX_DEPTH) return;
  const variants = variantsOf(schema, components);
  const taken = variants.filter((variant) => variant["x-support"] === undefined && variant.properties !== undefined);
  const isRequired = (name: string): boolean => taken.every(({ required }) => required?.includes(name));
  for (const variant of variants) {
    const { items, properties = {} } = variant;
    if (variant["x-support"] !== undefined) yield refusedVariant(variant, path, components);
    else {
      if (items !== undefined) yield* walk(items, `${path}[]`, components, depth + 1);
      for (const [name, property] of Object.entries(properties)) {
        const at = path === "" ? name : `${path}.${name}`;
        const field = fieldOf(property, at, isRequired(name), components);
        yield field;
        if (field.support === "supported") yield* walk(property, at, components, depth + 1);
      }
    }
  }
}

function fieldOf(property: Schema, path: string, isRequired: boolean, components: Components): Field {
  const whole = { ...resolved(property, components), ...property };
  const { description = "", default: value, "x-support": support = "supported" } = whole;
  const types = typesOf(property, components);
  return { path, types, default: value === undefined ? null : JSON.stringify(value), isRequired, support, description };
}

/**
 * Returns a rejected or ignored variant of a union as a field. Its path is the path of the discriminator, for example
 * `tools[].type`.
 */
function refusedVariant(variant: Schema, path: string, components: Components): Field {
  const [name = "", schema = {}] = Object.entries(variant.properties ?? {})[0] ?? [];
  const { description = "", "x-support": support = "refused" } = variant;
  const types = typesOf(schema, components);
  return { path: `${path}.${name}`, types, default: null, isRequired: false, support, description };
}

function merged(one: Field, other: Field): Field {
  return {
    ...one,
    isRequired: one.isRequired && other.isRequired,
    types: [...new Set([...one.types, ...other.types])],
    description: one.description || other.description,
  };
}

function resolved(schema: Schema, components: Components): Schema {
  const name = schema.$ref?.split("/").at(-1);
  return name === undefined ? schema : (components[name] ?? {});
}

/** Returns the alternatives of a schema, except null. */
function variantsOf(schema: Schema, components: Components): readonly Schema[] {
  const whole = resolved(schema, components);
  const choices = whole.anyOf ?? whole.oneOf;
  if (choices === undefined) return whole.type === "null" ? [] : [whole];
  return choices.flatMap((choice) => variantsOf(choice, components));
}

function typesOf(schema: Schema, components: Components): readonly string[] {
  return [...new Set(variantsOf(schema, components).flatMap((variant) => typesOfOne(variant, components)))];
}

function typesOfOne(schema: Schema, components: Components): readonly string[] {
  if (schema.const !== undefined) return [value(schema.const)];
  if (schema.enum !== undefined) return schema.enum.filter((one) => one !== null).map(value);
  const names = [schema.type ?? []].flat().filter((name) => name !== "null");
  if (names.length === 0) return ["any"];
  if (schema.items !== undefined) {
    const types = typesOf(schema.items, components);
    return [`array of ${types.length > 1 ? `(${types.join(" or ")})` : types.join("")}`];
  }
  return names.map((name) => name + range(schema));
}

function value(of: unknown): string {
  return `\`${JSON.stringify(of)}\``;
}

/** Returns the bounds of a number as text. Bounds that only mean "any safe integer" are omitted. */
function range({ minimum, maximum, exclusiveMinimum }: Schema): string {
  const isOwn = (bound: number | undefined): bound is number => bound !== undefined && Math.abs(bound) < 2 ** 53 - 1;
  const most = isOwn(maximum) ? `${maximum}` : null;
  if (isOwn(exclusiveMinimum)) return ` above ${exclusiveMinimum}${most === null ? "" : `, at most ${most}`}`;
  const least = isOwn(minimum) ? `${minimum}` : null;
  if (least !== null && most !== null) return ` ${least} to ${most}`;
  if (least !== null) return ` from ${least}`;
  return most === null ? "" : ` to ${most}`;
}
