// Text on which models are compared: present in every checkout, changed only by dependency updates, and independent of the
// models.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { LoadedModel } from "../../engines/engine.ts";

/** The first `count` tokens of the text, as a model with a tokenizer of its own has them. */
export function textTokens(model: LoadedModel, count: number): Int32Array {
  if (model.tokenize === null) throw new Error(`${model.card.engine} has no tokenizer of its own`);
  const folder = dirname(fileURLToPath(import.meta.resolve("yauzl")));
  const tokens = model.tokenize(readFileSync(join(folder, "README.md"), "utf8"));
  if (tokens.length < count) throw new Error(`the text has ${tokens.length} tokens; ${count} are asked for`);
  return tokens.slice(0, count);
}
