// Architecture chosen by the user (setting `arch`) in place of the class in config.json: the name of a class, the name of a GGUF
// architecture, or mistral.rs's name, which is the class name without its ending.
import { ServerError } from "../../../../runtime/errors.ts";
import { quote } from "../../gguf/invalid-file.ts";
import type { Config } from "../config.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { architectureFor, architectures } from "./registry.ts";

const ending = /(?:ForCausalLM|ForConditionalGeneration|ForSequenceClassification|ForMaskedLM|LMHeadModel|Model)$/;

/** Returns the architecture with this name. Throws `config_invalid`, which lists all names. */
export function architectureNamed(name: string, config: Config): CheckpointArchitecture {
  const found = architectures.find((one) => namesOf(one).includes(plain(name)) && (one.applies?.(config) ?? true));
  if (found !== undefined) return found;
  throw unknownName(name);
}

/**
 * Returns a class by which config.json names the same architecture as this name: the class that config.json has, if possible. Throws
 * `config_invalid`, which lists all names.
 */
export function classNamed(name: string, config: Config): string {
  const chosen = architectureNamed(name, config);
  const [own] = [config.value("architectures")].flat();
  if (typeof own === "string" && architectureFor(own, config)?.name === chosen.name) return own;
  return chosen.classes.find((one) => architectureFor(one, config) === chosen) ?? name;
}

/** Returns the GGUF name of the architecture with this name. Throws `config_invalid`, which lists all names. */
export function ggufArchitectureNamed(name: string): string {
  const exact = architectures.find((one) => plain(one.name) === plain(name));
  const found = exact ?? architectures.find((one) => namesOf(one).includes(plain(name)));
  if (found !== undefined) return found.name;
  throw unknownName(name);
}

function namesOf({ name, classes }: CheckpointArchitecture): readonly string[] {
  return [name, ...classes, ...classes.map((one) => one.replace(ending, ""))].map(plain);
}

/** Removes case and punctuation from a name: qwen3_5, qwen3.5 and Qwen3_5 become one name. */
function plain(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, "");
}

function unknownName(name: string): ServerError {
  const known = [...new Set(architectures.map((one) => one.name))].sort().join(", ");
  const message = `arch expects the name of an architecture (${known}) or of a class in config.json; got ${quote(name)}`;
  return new ServerError("config_invalid", message, { param: "arch" });
}
