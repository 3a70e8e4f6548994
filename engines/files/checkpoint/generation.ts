// Sampling settings of a checkpoint: the GGUF key/value pairs `general.sampling.*` and the suppressed tokens, from its
// generation_config.json.
import { suppressedKey } from "../gguf/metadata.ts";
import type { JsonObject } from "./config.ts";
import type { Pairs } from "./pairs.ts";

/** GGUF keys and types, by the name of the field in generation_config.json. Values of another type are ignored. */
const settings = {
  top_k: ["top_k", "i32"],
  top_p: ["top_p", "f32"],
  min_p: ["min_p", "f32"],
  temperature: ["temp", "f32"],
  repetition_penalty: ["penalty_repeat", "f32"],
} as const;

export function addSampling(config: JsonObject, pairs: Pairs): void {
  for (const [field, [key, type]] of Object.entries(settings)) {
    const value = config[field];
    if (typeof value !== "number" || !Number.isFinite(value)) continue;
    if (type === "i32" && !(Number.isInteger(value) && Math.abs(value) < 2 ** 31)) continue;
    pairs.set(`general.sampling.${key}`, { type, value });
  }
  const { suppress_tokens: tokens } = config;
  const isToken = (one: unknown) => typeof one === "number" && Number.isInteger(one) && Math.abs(one) < 2 ** 31;
  if (Array.isArray(tokens) && tokens.length > 0 && tokens.every(isToken)) {
    pairs.set(suppressedKey, { type: "array", of: "i32", value: tokens });
  }
}
