// Models of the probes: tiny generated ones, with the chat template that a probe is about.
import { join } from "node:path";
import { chatMl, writeTinyModel } from "../../test/fixtures/tiny-gguf.ts";

/** Compares each message with every other one. */
const quadratic = `{% for one in messages %}{% for other in messages %}{% if one['content'] == other['role'] %}x{% endif %}{% endfor %}{% endfor %}${chatMl}`;

const forever =
  "{% for a in range(1000000000) %}{% for b in range(1000000000) %}{% if a == b + 1 and a < 0 %}x{% endif %}{% endfor %}{% endfor %}";

export const templates = {
  quadratic,
  /** Never returns where the last message asks for it. */
  endless: `{% if messages[-1]['content'] == 'loop' %}${forever}{% endif %}${chatMl}`,
  /** Never returns, whatever is rendered. */
  endlessAtLoad: `${forever}${chatMl}`,
} as const;

/** Writes a tiny model and gives its path. */
export async function tinyModel(folder: string, name: string, chatTemplate: string = chatMl): Promise<string> {
  const path = join(folder, `${name}.gguf`);
  await writeTinyModel(path, { seed: 1, chatTemplate, contextLength: 4096 });
  return path;
}
