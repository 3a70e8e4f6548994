// Owns the request field that chooses a LoRA adapter, by alias or by generation, and how a generation is written. Used by
// the protocols that generate, and by the routes that load and unload adapters.
import { z } from "zod";
import { maxAliasBytes } from "../../../actors/api/lora-alias.ts";
import type { AdapterSelector } from "../../../engines/generation.ts";
import { expected } from "../../issues.ts";

export const generationSchema = z
  .string()
  .regex(/^[0-9a-fA-F]{64}$/, { error: expected("a generation of 64 hex digits") })
  .toLowerCase();

const aliasSchema = z
  .string()
  .trim()
  .min(1)
  .refine((alias) => Buffer.byteLength(alias) <= maxAliasBytes, {
    error: expected(`a name of at most ${maxAliasBytes} bytes`),
  });

export const adapterField = z
  .union([aliasSchema, z.strictObject({ generation: generationSchema })], {
    error: expected("the name of an adapter or an object with a generation"),
  })
  .nullish()
  .meta({
    description:
      "LoRA adapter to answer with: its name, or an object with the one generation; left out, the model alone",
  });

/** null where none was chosen. */
export function adapterOf(field: z.output<typeof adapterField>): AdapterSelector | null {
  if (field === undefined || field === null) return null;
  return typeof field === "string" ? { alias: field } : field;
}
