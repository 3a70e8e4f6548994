// README.md of a folder with quantized models.
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** Words before the version in every README of this program. */
export const byTroupe = "by troupe";

/** Writes README.md into a folder. A README that this program has not written is kept. */
export async function writeReadme(
  folder: string,
  lines: readonly string[],
  warn: (message: string) => void,
): Promise<void> {
  const path = join(folder, "README.md");
  const text = await readFile(path, "utf8").catch(() => null);
  if (text === null || /^.*\bmade (?:from .* )?by troupe \d/m.test(text)) await writeFile(path, lines.join("\n"));
  else warn(`${path} is kept, because troupe has not written it; --no-readme leaves it out`);
}
