// Open bodies: removes `additionalProperties: false` from the schemas of request bodies whose unknown fields are ignored. The
// zod schemas remain strict, because only strict schemas detect unknown fields. Response schemas are unchanged.

import type { oas31 } from "zod-openapi";
import type { DescribedRoute } from "../route.ts";

type Json = Record<string, unknown>;

const reference = "#/components/schemas/";

export function openBodies(document: oas31.OpenAPIObject, routes: readonly DescribedRoute[]): void {
  const schemas = (document.components?.schemas ?? {}) as Readonly<Record<string, Json>>;
  const opened = new Set<unknown>();
  const open = (value: unknown): void => {
    if (typeof value !== "object" || value === null || opened.has(value)) return;
    opened.add(value);
    const schema = value as Json;
    if (schema.additionalProperties === false) delete schema.additionalProperties;
    const { $ref: target } = schema;
    if (typeof target === "string") open(schemas[target.slice(reference.length)]);
    for (const inner of Object.values(schema)) open(inner);
  };
  for (const { method, path, kind, ignoresUnknown } of routes) {
    if (kind !== "inference" && ignoresUnknown !== true) continue;
    const operations = document.paths?.[path] as Readonly<Record<string, { readonly requestBody?: Json }>> | undefined;
    open(operations?.[method.toLowerCase()]?.requestBody?.content);
  }
}
