// PEFT config: reads rank and scale of each module from adapter_config.json. A config with a feature other than adding
// low-rank products is rejected; the error names the feature. Keys without effect on inference are ignored.

import { quote } from "../../gguf/invalid-file.ts";
import { invalidAdapter } from "../adapter-problems.ts";
import { NamePatterns } from "./name-patterns.ts";

export interface PeftConfig {
  /** Returns the expected rank of a module; `module` is its name in the model that PEFT adapted. */
  rankOf(module: string): number;
  /** Returns the factor by which the product of a module's two matrices is multiplied. */
  scaleOf(module: string): number;
}

type Fields = Readonly<Record<string, unknown>>;

/**
 * Values of the config key `init_lora_weights` (initialisation of an adapter) that leave the model's own weights
 * unchanged.
 */
const harmlessStarts: readonly unknown[] = [undefined, null, true, false, "gaussian", "orthogonal", "eva"];

/** Keys that must be absent, empty or false, with the feature that each one enables. */
const refused: Readonly<Record<string, string>> = {
  use_dora: "DoRA",
  use_qalora: "QALoRA",
  lora_bias: "biases",
  fan_in_fan_out: "transposed weights",
  modules_to_save: "whole modules",
  layer_replication: "repeated layers",
  target_parameters: "parameters that are no modules",
  trainable_token_indices: "token embeddings",
  alora_invocation_tokens: "activation by tokens (aLoRA)",
};

/** Parses and checks a config. Throws `invalid_lora_adapter`. */
export function parsePeftConfig(bytes: Buffer): PeftConfig {
  const fields = parseFields(bytes);
  checkKind(fields);
  const { r: rank, lora_alpha: alpha, use_rslora: stabilised = false } = fields;
  if (!isRank(rank)) throw unfit("r", rank, "a positive integer");
  if (!isFiniteNumber(alpha)) throw unfit("lora_alpha", alpha, "a number");
  if (typeof stabilised !== "boolean") throw unfit("use_rslora", stabilised, "true or false");
  const ranks = patternsOf(fields, "rank_pattern", isRank, "positive integers");
  const alphas = patternsOf(fields, "alpha_pattern", isFiniteNumber, "numbers");
  const rankOf = (module: string) => ranks.find(module) ?? rank;
  return {
    rankOf,
    scaleOf(module) {
      const own = rankOf(module);
      return (alphas.find(module) ?? alpha) / (stabilised ? Math.sqrt(own) : own);
    },
  };
}

function parseFields(bytes: Buffer): Fields {
  let parsed: unknown;
  try {
    parsed = JSON.parse(bytes.toString("utf8"));
  } catch (error) {
    throw invalidAdapter(`its adapter_config.json is not JSON: ${(error as Error).message.slice(0, 200)}`);
  }
  if (isFields(parsed)) return parsed;
  throw invalidAdapter("its adapter_config.json is not a JSON object");
}

function checkKind(fields: Fields): void {
  const { peft_type: kind, bias = "none", init_lora_weights: start } = fields;
  if (kind !== "LORA") throw unfit("peft_type", kind, '"LORA", the only supported kind');
  if (bias !== "none") throw unfit("bias", bias, '"none": biases are not supported');
  if (!harmlessStarts.includes(start)) {
    throw invalidAdapter(
      `its init_lora_weights is ${shown(start)}, so it may belong to weights that differ from the model's; convert it ` +
        "to a plain LoRA adapter (PEFT: path_initial_model_for_weight_conversion)",
    );
  }
  for (const [key, meaning] of Object.entries(refused)) {
    if (!isNothing(fields[key]))
      throw invalidAdapter(`its adapter_config.json has ${key}: ${meaning} are not supported`);
  }
}

function patternsOf(
  fields: Fields,
  key: string,
  fits: (value: unknown) => value is number,
  expected: string,
): NamePatterns {
  const patterns = fields[key] ?? {};
  if (!isFields(patterns)) throw unfit(key, patterns, `an object of ${expected}`);
  const pairs = Object.entries(patterns).map(([pattern, value]): [string, number] => {
    if (!fits(value)) throw unfit(key, value, `an object of ${expected}`);
    return [pattern, value];
  });
  return new NamePatterns(key, pairs);
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isNothing(value: unknown): boolean {
  const isEmpty = typeof value === "object" && value !== null && Object.keys(value).length === 0;
  return value === undefined || value === null || value === false || isEmpty;
}

function isRank(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) > 0;
}

function isFiniteNumber(value: unknown): value is number {
  return Number.isFinite(value);
}

function unfit(key: string, value: unknown, expected: string) {
  return invalidAdapter(`its adapter_config.json has ${shown(value)} for ${key}; expected ${expected}`);
}

/** Formats any JSON value for a message, shortened. */
function shown(value: unknown): string {
  if (typeof value === "string") return quote(value);
  return (JSON.stringify(value) ?? "nothing").slice(0, 64);
}
