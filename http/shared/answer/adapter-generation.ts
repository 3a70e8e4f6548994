// Adapter generation: the field of an answer that names the version of its adapter, in every protocol that has it.
import { z } from "zod";

export const adapterGeneration = z
  .string()
  .optional()
  .meta({ description: "Version of the adapter that answered, 64 hex digits; absent without an adapter." });

/** Fields to spread into a body. */
export function generationFields(generation: string | null): { readonly adapter_generation?: string } {
  return generation === null ? {} : { adapter_generation: generation };
}
