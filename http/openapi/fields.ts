// Owns the fields of a request as a flat list, read from the JSON schema the API document has of it: path, type in words,
// and whether the field is supported, ignored or refused. Used by the writer of docs/protocols.md alone.
import type { ApiDocument } from "./document.ts";

export type Support = "supported" | "ignored" | "refused";

export interface Field {
  /** `messages[].content[].text` */
  readonly path: string;
  /** Any of these. */
  readonly types: readonly string[];
  readonly isRequired: boolean;
  readonly support: Support;
  readonly description: string;
}

/** As much of a JSON schema as is read here. */
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
  readonly "x-support"?: Support;
}

/** A schema may hold itself; nobody reads fields deeper than this. */
const MAX_DEPTH = 6;

/** The fields of a body. What several variants of an object have in common stands once. */
export function fieldsOf(document: ApiDocument, schema: Schema): readonly Field[] {
  const fields = new Map<string, Field>();
  const components = (document.components?.schemas ?? {}) as Readonly<Record<string, Schema>>;
  for (const field of walk(schema, "", components, 0)) {
    const key = `${field.path} ${field.support}`;
    const known = fields.get(key);
    fields.set(key, known === undefined ? field : merged(known, field));
  }
  return [...fields.values()];
}

type Components = Readonly<Record<string, Schema>>;

function* walk(schema: Schema, path: string, components: Components, depth: number): Iterable<Field> {
  if (depth > MAX_DEPTH) return;
  const variants = variantsOf(schema, components);
  const taken = variants.filter((variant) => variant["x-support"] === undefined);
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
  const description = property.description ?? resolved(property, components).description ?? "";
  const support = supportOf(property, components);
  return { path, types: typesOf(property, components), isRequired, support, description };
}

/** A variant that is known and not taken, under the field that tells it apart. */
function refusedVariant(variant: Schema, path: string, components: Components): Field {
  const [name = "", schema = {}] = Object.entries(variant.properties ?? {})[0] ?? [];
  const { description = "", "x-support": support = "refused" } = variant;
  return { path: `${path}.${name}`, types: typesOf(schema, components), isRequired: false, support, description };
}

function supportOf(property: Schema, components: Components): Support {
  return property["x-support"] ?? resolved(property, components)["x-support"] ?? "supported";
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

/** What a value may be, without null. */
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
  if (schema.items !== undefined) return [`array of ${typesOf(schema.items, components).join(" / ")}`];
  return names.map((name) => name + range(schema));
}

function value(of: unknown): string {
  return `\`${JSON.stringify(of)}\``;
}

/** The bounds of a number, where they are its own and not those of every number. */
function range({ minimum, maximum, exclusiveMinimum }: Schema): string {
  const isOwn = (bound: number | undefined): bound is number => bound !== undefined && Math.abs(bound) < 2 ** 53 - 1;
  const least = isOwn(minimum) ? `${minimum}` : isOwn(exclusiveMinimum) ? `more than ${exclusiveMinimum}` : null;
  const most = isOwn(maximum) ? `${maximum}` : null;
  if (least !== null && most !== null) return ` ${least} to ${most}`;
  if (least !== null) return ` from ${least}`;
  return most === null ? "" : ` to ${most}`;
}
