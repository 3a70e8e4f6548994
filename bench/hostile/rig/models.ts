// Models of the probes: tiny generated models, with the chat templates that the probes need.
import { join } from "node:path";
import { chatMl, writeTinyModel } from "../../../test/fixtures/models/tiny-gguf.ts";

/** Template that compares each message with every other one. */
const quadratic = `{% for one in messages %}{% for other in messages %}{% if one['content'] == other['role'] %}x{% endif %}{% endfor %}{% endfor %}${chatMl}`;

/** Variables of nested loops with 5000^4 iterations, which practically never end and need no memory. */
const loops = ["a", "b", "c", "d"];
const forever = `${loops.map((name) => `{% for ${name} in range(5000) %}`).join("")}{% if a < 0 %}x{% endif %}${"{% endfor %}".repeat(loops.length)}`;

/** Template that makes a list with more entries than any heap holds. */
const hugeList = "{% for a in range(1000000000) %}x{% endfor %}";

/** Template that nests small lists, each inside the next, until the heap is full. */
const bottomless = `{% set ns = namespace(all=0) %}{% for a in range(4000000) %}{% set ns.all = [ns.all, [0], [0], [0], [0]] %}{% endfor %}`;

/** Returns a template that runs `text` if the last message is `word`. */
const onWord = (word: string, text: string) =>
  `{% if messages[-1]['content'] == '${word}' %}${text}{% endif %}${chatMl}`;

export const templates = {
  quadratic,
  /** Template that never ends if the last message is "loop". */
  endless: onWord("loop", forever),
  /** Template that fills all memory if the last message is "fill". */
  bottomless: onWord("fill", bottomless),
  /** Template that makes a list larger than any heap if the last message is "list". */
  hugeList: onWord("list", hugeList),
  /** Template that never ends, for any messages. */
  endlessAtLoad: `${forever}${chatMl}`,
} as const;

/** Writes a tiny model and returns its path. */
export async function tinyModel(folder: string, name: string, chatTemplate: string = chatMl): Promise<string> {
  const path = join(folder, `${name}.gguf`);
  await writeTinyModel(path, { seed: 1, chatTemplate, contextLength: 4096 });
  return path;
}
