// Texts on which models are compared. They are present in every checkout, change only with dependency updates, and do not depend
// on the models.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { LoadedModel } from "../../engines/engine.ts";

/** Returns the first `count` tokens of the README of an npm package, encoded by the model's own tokenizer. */
export function textTokens(model: LoadedModel, count: number, packageName = "yauzl"): Int32Array {
  if (model.tokenize === null) throw new Error(`${model.card.engine} has no tokenizer of its own`);
  const entry = fileURLToPath(import.meta.resolve(packageName));
  const modules = "/node_modules/";
  const folder = join(entry.slice(0, entry.lastIndexOf(modules) + modules.length), packageName);
  const tokens = model.tokenize(readFileSync(join(folder, "README.md"), "utf8"));
  if (tokens.length < count) throw new Error(`the text has ${tokens.length} tokens; ${count} are asked for`);
  return tokens.slice(0, count);
}
