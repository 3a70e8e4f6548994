// Adapter generation: the response field with the version of the adapter, in every protocol that has the field.
import { z } from "zod";

export const adapterGeneration = z
  .string()
  .optional()
  .meta({ description: "Version of the adapter that answered, 64 hex digits; absent without an adapter." });

/** Returns an object with the field adapter_generation, to spread into a response body. It is empty without an adapter. */
export function generationFields(generation: string | null): { readonly adapter_generation?: string } {
  return generation === null ? {} : { adapter_generation: generation };
}
