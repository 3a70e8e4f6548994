// Owns how an answer says which generation of an adapter it was made with, in every protocol that does.
import { z } from "zod";

export const adapterGeneration = z
  .string()
  .optional()
  .meta({ description: "Generation of the adapter it was answered with, 64 hex digits; left out for the model alone" });

/** To be spread into a body. */
export function generationFields(generation: string | null): { readonly adapter_generation?: string } {
  return generation === null ? {} : { adapter_generation: generation };
}
