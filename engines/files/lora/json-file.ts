// Owns reading a small JSON file that comes with adapters: bounded, and opened like all of their files.
import { invalidAdapter } from "./adapter-problems.ts";
import { SourceFile } from "./source-file.ts";

const maxBytes = 16 * 2 ** 20;

/** `name` is what errors call it. Throws the codes of files, and invalid_lora_adapter where it is no JSON. */
export async function readJsonFile(path: string, name: string): Promise<unknown> {
  const file = await SourceFile.open(path, name, { root: null, maxBytes });
  try {
    const text = Buffer.alloc(file.size);
    await file.read(text, 0);
    return JSON.parse(text.toString("utf8"));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw invalidAdapter(`its ${name} is no JSON: ${error.message.slice(0, 200)}`);
  } finally {
    await file.close();
  }
}
