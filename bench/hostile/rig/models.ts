// Models of the probes: tiny generated ones, with the chat template that a probe is about.
import { join } from "node:path";
import { chatMl, writeTinyModel } from "../../../test/fixtures/models/tiny-gguf.ts";

/** Compares each message with every other one. */
const quadratic = `{% for one in messages %}{% for other in messages %}{% if one['content'] == other['role'] %}x{% endif %}{% endfor %}{% endfor %}${chatMl}`;

/** Nested loops that never end in practice and need no memory. */
const loops = ["a", "b", "c", "d"];
const forever = `${loops.map((name) => `{% for ${name} in range(5000) %}`).join("")}{% if a < 0 %}x{% endif %}${"{% endfor %}".repeat(loops.length)}`;

/** A list of more entries than any heap holds. */
const hugeList = "{% for a in range(1000000000) %}x{% endfor %}";

/** Small lists, each of which holds the one before, until no heap holds them. */
const bottomless = `{% set ns = namespace(all=0) %}{% for a in range(4000000) %}{% set ns.all = [ns.all, [0], [0], [0], [0]] %}{% endfor %}`;

/** A template that runs `text` where the last message is `word`. */
const onWord = (word: string, text: string) =>
  `{% if messages[-1]['content'] == '${word}' %}${text}{% endif %}${chatMl}`;

export const templates = {
  quadratic,
  /** Never returns where the last message asks for it. */
  endless: onWord("loop", forever),
  /** Fills all memory where the last message asks for it. */
  bottomless: onWord("fill", bottomless),
  /** Makes a list that no heap holds where the last message asks for it. */
  hugeList: onWord("list", hugeList),
  /** Never returns, whatever is rendered. */
  endlessAtLoad: `${forever}${chatMl}`,
} as const;

/** Writes a tiny model and gives its path. */
export async function tinyModel(folder: string, name: string, chatTemplate: string = chatMl): Promise<string> {
  const path = join(folder, `${name}.gguf`);
  await writeTinyModel(path, { seed: 1, chatTemplate, contextLength: 4096 });
  return path;
}
