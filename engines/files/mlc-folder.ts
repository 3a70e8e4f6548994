// MLC folder: a model compiled for WebGPU, which a browser runs with web-llm. The folder has mlc-chat-config.json, a list of the
// weights (tensor-cache.json, formerly ndarray-cache.json), the files of that list, a tokenizer, and the compiled library (.wasm).
import { readdir, readFile, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { ServerError } from "../../runtime/errors.ts";
import { JsonField } from "./json-field.ts";

export interface MlcModel {
  /** Name of the folder. */
  readonly name: string;
  readonly files: readonly MlcFile[];
}

export interface MlcFile {
  readonly name: string;
  readonly path: string;
  readonly bytes: number;
}

const configName = "mlc-chat-config.json";
/** Names of the file that lists the weights, the newer name first. */
const listNames = ["tensor-cache.json", "ndarray-cache.json"];
const tokenizerNames = ["tokenizer.json", "tokenizer.model"];
const maxJsonBytes = 64 * 2 ** 20;
const maxShards = 4096;

/** Lists the files of the model in a folder. Throws model_file_invalid if a file is missing or does not have the listed size. */
export async function readMlcFolder(folder: string): Promise<MlcModel> {
  const names = await readdir(folder).catch((cause) => {
    throw new ServerError("model_file_invalid", `${folder} cannot be read as a folder of a model for WebGPU`, {
      param: "web_models",
      cause,
    });
  });
  const config = await readJson(join(folder, needed(folder, names, [configName])));
  const asked = config
    .get("tokenizer_files")
    .elements(64)
    .map((field) => field.text());
  const tokenizer = needed(
    folder,
    names,
    tokenizerNames.filter((name) => asked.includes(name)),
  );
  const list = needed(folder, names, listNames);
  const shards = await weightFiles(join(folder, list));
  const libraries = names.filter((name) => name.endsWith(".wasm"));
  if (libraries.length !== 1) {
    const advice =
      libraries.length === 0 ? "put the compiled library into the folder (docs/ui.md)" : "remove the other files";
    const problem = `expected one .wasm file, the compiled library of the model, in ${folder}; got ${libraries.length}; ${advice}`;
    throw new ServerError("model_file_invalid", problem, { param: "web_models" });
  }
  const others = [configName, list, tokenizer, ...libraries].map((name) => ({ name, bytes: null }));
  const files = await Promise.all([...others, ...shards].map((file) => fileOf(folder, file)));
  return { name: basename(folder), files };
}

/** Returns the first of the `wanted` names that the folder has. Throws if it has none. */
function needed(folder: string, names: readonly string[], wanted: readonly string[]): string {
  const found = wanted.find((name) => names.includes(name));
  if (found !== undefined) return found;
  const which =
    wanted.length === 0 ? `${tokenizerNames.join(" or ")} in tokenizer_files of ${configName}` : wanted.join(" or ");
  const problem = `expected ${which} in ${folder}, the folder of a model for WebGPU`;
  throw new ServerError("model_file_invalid", problem, { param: "web_models" });
}

async function readJson(path: string): Promise<JsonField> {
  const { size } = await stat(path);
  if (size > maxJsonBytes) {
    throw new ServerError("model_file_invalid", `${path} has ${size} bytes; at most ${maxJsonBytes} are read`);
  }
  try {
    return new JsonField(path, "", JSON.parse(await readFile(path, "utf8")));
  } catch (cause) {
    throw new ServerError("model_file_invalid", `${path} is no JSON`, { cause });
  }
}

/** Returns the files with weights. Each element of `records` in the list has the name (`dataPath`) and size (`nbytes`) of a file. */
async function weightFiles(path: string): Promise<{ readonly name: string; readonly bytes: number }[]> {
  const records = (await readJson(path)).get("records");
  const files = records.elements(maxShards).map((record) => {
    const field = record.get("dataPath");
    const name = field.required(field.text());
    if (!/^[\w-][\w.-]*$/.test(name))
      throw field.invalid(`is ${JSON.stringify(name.slice(0, 80))}; expected a file name`);
    const size = record.get("nbytes");
    return { name, bytes: size.required(size.count(2 ** 40)) };
  });
  if (files.length === 0) throw records.invalid("has no files");
  return files;
}

async function fileOf(
  folder: string,
  { name, bytes }: { readonly name: string; readonly bytes: number | null },
): Promise<MlcFile> {
  const path = join(folder, name);
  const { size } = await stat(path).catch((cause) => {
    throw new ServerError("model_file_invalid", `${path} is missing: download the model again`, { cause });
  });
  if (bytes !== null && size !== bytes) {
    throw new ServerError(
      "model_file_invalid",
      `${path} has ${size} bytes; expected ${bytes}: download the file again`,
    );
  }
  return { name, path, bytes: size };
}
