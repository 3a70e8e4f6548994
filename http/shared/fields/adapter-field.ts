// Request field `adapter`: selects a LoRA adapter by alias or by generation (version). The routes that load and unload adapters
// also use the schema of a generation.
import { z } from "zod";
import { maxAliasBytes } from "../../../actors/api/lora-alias.ts";
import type { AdapterSelector } from "../../../engines/generation.ts";
import { expected } from "../../issues.ts";

export const generationSchema = z
  .string()
  .regex(/^[0-9a-fA-F]{64}$/, { error: expected("a generation of 64 hex digits") })
  .toLowerCase()
  .meta({ description: "Id of an adapter generation: 64 hexadecimal digits." });

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
      "LoRA adapter: its alias, or an object with the id of a generation. By default the base model answers.",
  });

/** Returns the selected adapter; null if none is selected. */
export function adapterOf(field: z.output<typeof adapterField>): AdapterSelector | null {
  if (field === undefined || field === null) return null;
  return typeof field === "string" ? { alias: field } : field;
}
