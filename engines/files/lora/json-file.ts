// Small JSON file of an adapter. Its size is limited, and it is opened with the same checks as all adapter files.
import { invalidAdapter } from "./adapter-problems.ts";
import { SourceFile } from "./source-file.ts";

const maxBytes = 16 * 2 ** 20;

/**
 * Reads and parses a JSON file; `name` is its name in errors. Throws the errors of SourceFile, and
 * `invalid_lora_adapter` if the content is not JSON.
 */
export async function readJsonFile(path: string, name: string): Promise<unknown> {
  const file = await SourceFile.open(path, name, { root: null, maxBytes });
  try {
    const text = Buffer.alloc(file.size);
    await file.read(text, 0);
    return JSON.parse(text.toString("utf8"));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw invalidAdapter(`its ${name} is not JSON: ${error.message.slice(0, 200)}`);
  } finally {
    await file.close();
  }
}
