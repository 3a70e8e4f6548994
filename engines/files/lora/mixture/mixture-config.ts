// X-LoRA config: xlora_config.json, with the shape of the classifier and the use of its outputs. Defaults follow the
// code of the training library, not its comments. Keys used only in training are ignored.
import { join } from "node:path";
import { z } from "zod";
import { quote } from "../../gguf/invalid-file.ts";
import { invalidAdapter } from "../adapter-problems.ts";
import { readJsonFile } from "../json-file.ts";

const count = z.int().min(1);
/** Adapter names. Published X-LoRAs have up to about ten adapters. */
export const mixtureNames = z.array(z.string()).min(1).max(256);

const configType = z.object({
  hidden_size: count,
  /**
   * Adapter names: a list, or an object whose keys are the names. The values of such an object are paths that only
   * training used.
   */
  adapters: z.union([
    mixtureNames,
    z
      .record(z.string(), z.unknown())
      .transform((byName) => Object.keys(byName))
      // Numeric names are rejected, because JavaScript does not keep the order of numeric object keys.
      .pipe(mixtureNames.refine((names) => !names.some((name) => /^\d+$/.test(name)))),
  ]),
  layerwise_scalings: z.boolean().default(false),
  xlora_depth: count.max(64).default(1),
  xlora_size: count.default(2048),
  enable_relu_and_dropout: z.boolean().default(false),
  use_bias: z.boolean().default(true),
  enable_softmax: z.boolean().default(true),
  enable_softmax_topk: z.boolean().default(false),
  softmax_temperature: z.number().positive().default(1),
  top_k_lora: count.nullable().default(null),
  scaling_pass_value: z.number().default(0),
  global_scaling_weight: z.number().default(1),
});

export type MixtureConfig = z.infer<typeof configType>;

const fileName = "xlora_config.json";

/** Reads the config of an X-LoRA folder. Throws `invalid_lora_adapter`. */
export async function readMixtureConfig(folder: string): Promise<MixtureConfig> {
  const parsed = configType.safeParse(await readJsonFile(join(folder, fileName), fileName));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const key = issue?.path.join(".") || "its content";
  throw invalidAdapter(`its ${fileName} has a wrong ${quote(key)}: ${issue?.message}`);
}
