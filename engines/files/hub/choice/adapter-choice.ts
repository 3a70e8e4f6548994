// Adapter choice: selects one LoRA adapter, a PEFT folder or a GGUF file, among the files of a repository. Works on
// names only, from the hub's listing or from the cache; no disk or network access.
import { posix } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";
import { suggestion } from "../../../../runtime/nearest.ts";
import { stemOf } from "../../gguf/shards.ts";

export const adapterConfigFile = "adapter_config.json";
export const adapterWeightsFile = "adapter_model.safetensors";

const listedLimit = 30;

/** An adapter in a repository: its name ("" is the repository itself), and its files, the config first. */
interface AdapterFiles {
  readonly name: string;
  readonly files: readonly string[];
}

export interface AdapterChoice {
  /** Name of the repository or folder, as shown in error messages. */
  readonly place: string;
  /** Name of a folder or of a .gguf file; null = the repository itself, or its only adapter. */
  readonly wanted: string | null;
}

/** Returns the files of the chosen adapter. Throws `invalid_lora_adapter` with a list of the available adapters. */
export function chooseAdapter(paths: readonly string[], { place, wanted }: AdapterChoice): readonly string[] {
  const adapters = listAdapters(paths);
  const { name, files } = wanted === null ? theOne(adapters, paths, place) : named(adapters, wanted, place);
  const missing = files.filter((file) => !paths.includes(file));
  if (missing.length === 0) return files;
  const shown = name === "" ? place : `"${name}" in ${place}`;
  throw invalid(`${shown} has no ${adapterWeightsFile} beside its ${adapterConfigFile}${otherWeights(paths, name)}`);
}

function theOne(adapters: readonly AdapterFiles[], paths: readonly string[], place: string): AdapterFiles {
  const [only, ...others] = adapters;
  const found = adapters.find(({ name }) => name === "") ?? (others.length === 0 ? only : undefined);
  if (found !== undefined) return found;
  if (only !== undefined)
    throw invalid(`there are several LoRA adapters in ${place}; name one of them${list(adapters)}`);
  const expected = `an ${adapterConfigFile} with its ${adapterWeightsFile}, or a .gguf file, is expected`;
  throw invalid(`there is no LoRA adapter in ${place}: ${expected}${otherWeights(paths, "")}`);
}

function named(adapters: readonly AdapterFiles[], wanted: string, place: string): AdapterFiles {
  const path = wanted.replace(/\/+$/, "");
  const isMeant = ({ name }: AdapterFiles) => [name, posix.basename(name), stemOf(posix.basename(name))].includes(path);
  const [found, ...more] = adapters.some(({ name }) => name === path)
    ? adapters.filter(({ name }) => name === path)
    : adapters.filter(isMeant);
  if (found === undefined) {
    const names = adapters.map(({ name }) => name);
    throw invalid(`there is no LoRA adapter "${wanted}" in ${place}${suggestion(path, names)}${list(adapters)}`);
  }
  if (more.length > 0) throw invalid(`"${wanted}" fits several LoRA adapters in ${place}${list([found, ...more])}`);
  return found;
}

/** Lists possible adapters. A GGUF file may turn out not to be an adapter when it is read. */
function listAdapters(paths: readonly string[]): AdapterFiles[] {
  return [...paths].sort().flatMap((path): AdapterFiles[] => {
    if (/\.gguf$/i.test(path)) return [{ name: path, files: [path] }];
    if (posix.basename(path) !== adapterConfigFile) return [];
    const folder = posix.dirname(path);
    const isRoot = folder === ".";
    const weights = isRoot ? adapterWeightsFile : `${folder}/${adapterWeightsFile}`;
    return [{ name: isRoot ? "" : folder, files: [path, weights] }];
  });
}

function list(adapters: readonly AdapterFiles[]): string {
  const named = adapters.filter(({ name }) => name !== "");
  if (named.length === 0) return adapters.length === 0 ? "; there is none at all" : "; it is one itself";
  const names = named.slice(0, listedLimit).map(({ name }) => `"${name}"`);
  const rest = named.length > listedLimit ? ` and ${named.length - listedLimit} more` : "";
  return `: ${names.join(", ")}${rest}`;
}

function otherWeights(paths: readonly string[], folder: string): string {
  const isOther = paths.some((path) => {
    const isThere = posix.dirname(path) === (folder === "" ? "." : folder);
    return isThere && /^adapter_model.*\.(?:bin|pth?|safetensors)$/.test(posix.basename(path));
  });
  return isOther ? "; its weights are in another format, or in several files: save them as one safetensors file" : "";
}

function invalid(message: string): ServerError {
  return new ServerError("invalid_lora_adapter", message);
}
