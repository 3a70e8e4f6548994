// Tokenizer folder: reads the files of a Hugging Face folder that describe its tokenizer. Every file has a maximum size, and opening a file
// never blocks.
import { constants } from "node:fs";
import { type FileHandle, open, readdir, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { ServerError } from "../../../../../runtime/errors.ts";
import { accessFailure } from "../../../access-failure.ts";
import { JsonField } from "../../../json-field.ts";

const mebibyte = 2 ** 20;
/** Maximum size of tokenizer.json. The largest in use have 35 MB. */
const maxTokenizerBytes = 128 * mebibyte;
/** Maximum number of values in a JSON file: each takes far more memory than its bytes. The largest files have 2 million. */
const maxValues = 8 * 2 ** 20;
/** Maximum size in bytes of a file other than tokenizer.json. */
const maxFileBytes = 64 * mebibyte;
/** Maximum number of entries of a folder of templates. */
const maxEntries = 256;

const standardName = "tokenizer.json";

export class TokenizerFolder {
  readonly path: string;
  /** Name of the tokenizer file, which has the format of tokenizer.json and may have another name. */
  readonly #tokenizerName: string;

  private constructor(path: string, tokenizerName: string) {
    this.path = path;
    this.#tokenizerName = tokenizerName;
  }

  /** Opens a folder, or the folder of a file in the format of tokenizer.json. Throws `model_file_invalid`. */
  static async open(path: string): Promise<TokenizerFolder> {
    const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
      const message = `cannot open the tokenizer at ${path} (${error.code}); check the path`;
      throw new ServerError("model_file_invalid", message, { cause: error });
    });
    if (found.isDirectory()) return new TokenizerFolder(path, standardName);
    if (path.endsWith(".json")) return new TokenizerFolder(dirname(path), basename(path));
    throw new ServerError("model_file_invalid", `${path} is no tokenizer; expected a folder or a tokenizer.json`);
  }

  tokenizerJson(): Promise<JsonField | null> {
    return this.json(this.#tokenizerName, maxTokenizerBytes);
  }

  /** Returns the content of a JSON file; null if there is no such file. */
  async json(name: string, maxBytes = maxFileBytes): Promise<JsonField | null> {
    const bytes = await this.bytes(name, maxBytes);
    if (bytes === null) return null;
    const path = join(this.path, name);
    const values = countValues(bytes);
    if (values > maxValues) throw invalid(path, `has about ${values} values; at most ${maxValues} are read`);
    try {
      const root = new JsonField(path, "", JSON.parse(decoded(path, bytes)));
      root.required(root.record());
      return root;
    } catch (error) {
      if (error instanceof ServerError) throw error;
      throw invalid(path, "is not JSON");
    }
  }

  async text(name: string, maxBytes = maxFileBytes): Promise<string | null> {
    const bytes = await this.bytes(name, maxBytes);
    return bytes === null ? null : decoded(join(this.path, name), bytes);
  }

  /** Returns the content of a file; null if there is no such file. */
  async bytes(name: string, maxBytes = maxFileBytes): Promise<Buffer | null> {
    const path = join(this.path, name);
    const file = await openIfPresent(path);
    if (file === null) return null;
    try {
      const found = await file.stat();
      if (!found.isFile()) throw invalid(path, "is not a regular file");
      if (found.size > maxBytes) throw invalid(path, `has ${found.size} bytes; at most ${maxBytes} are read`);
      return await readAll(file, found.size);
    } finally {
      await file.close();
    }
  }

  /** Returns the names of the files in a subfolder, sorted; none if there is no such folder. */
  async names(subfolder: string): Promise<string[]> {
    const names = await readdir(join(this.path, subfolder)).catch(() => []);
    if (names.length <= maxEntries) return names.sort();
    throw invalid(join(this.path, subfolder), `has ${names.length} entries; at most ${maxEntries} are read`);
  }
}

async function openIfPresent(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    throw accessFailure(error, `${path} cannot be opened (${code})`, "check its permissions");
  }
}

/** Reads at most `size` bytes, even if the file grows during the read. */
async function readAll(file: FileHandle, size: number): Promise<Buffer> {
  const bytes = Buffer.alloc(size);
  let end = 0;
  while (end < size) {
    const { bytesRead } = await file.read(bytes, end, size - end, end);
    if (bytesRead === 0) break;
    end += bytesRead;
  }
  return bytes.subarray(0, end);
}

function decoded(path: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw invalid(path, "is not UTF-8");
  }
}

/** Returns an upper limit of the number of values in JSON: each is behind a comma or an opening bracket. */
function countValues(bytes: Uint8Array): number {
  let count = 0;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] as number;
    if (byte === 0x2c || byte === 0x5b || byte === 0x7b) count++;
  }
  return count;
}

function invalid(path: string, problem: string): ServerError {
  return new ServerError("model_file_invalid", `${path} ${problem}; fetch it again`);
}
