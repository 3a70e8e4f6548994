// Adapter generation: response field with the version of the LoRA adapter, in every protocol that has it.
import { z } from "zod";

export const adapterGeneration = z
  .string()
  .optional()
  .meta({ description: "Version of the adapter that answered, 64 hex digits; absent without an adapter." });

/** Returns the field adapter_generation as an object to spread into a response body. The object is empty without an adapter. */
export function generationFields(generation: string | null): { readonly adapter_generation?: string } {
  return generation === null ? {} : { adapter_generation: generation };
}
