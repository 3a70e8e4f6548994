// Text on which models are compared. It is present in every checkout, changes only with dependency updates, and does not depend
// on the models.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { LoadedModel } from "../../engines/engine.ts";

/** Returns the first `count` tokens of the text, encoded by the model's own tokenizer. */
export function textTokens(model: LoadedModel, count: number): Int32Array {
  if (model.tokenize === null) throw new Error(`${model.card.engine} has no tokenizer of its own`);
  const folder = dirname(fileURLToPath(import.meta.resolve("yauzl")));
  const tokens = model.tokenize(readFileSync(join(folder, "README.md"), "utf8"));
  if (tokens.length < count) throw new Error(`the text has ${tokens.length} tokens; ${count} are asked for`);
  return tokens.slice(0, count);
}
