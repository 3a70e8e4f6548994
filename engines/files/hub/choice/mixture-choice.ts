// X-LoRA choice: selects the files of one X-LoRA in a repository: its classifier, its config, and the adapters in
// subfolders. Works on names only, from the hub's listing or from the cache; no disk or network access.
import { posix } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";
import { type AdapterChoice, adapterConfigFile, adapterWeightsFile } from "./adapter-choice.ts";

const configFile = "xlora_config.json";
export const mixtureClassifierFile = "xlora_classifier.safetensors";

/**
 * Returns the files of the chosen X-LoRA, the classifier first. Throws `invalid_lora_adapter` with a list of the available
 * X-LoRAs.
 */
export function chooseMixture(paths: readonly string[], { place, wanted }: AdapterChoice): readonly string[] {
  const known = new Set(paths);
  const folder = wanted === null ? theOne(paths, place) : wanted.replace(/\/+$/, "");
  const inFolder = (name: string) => (folder === "" ? name : `${folder}/${name}`);
  for (const name of [configFile, mixtureClassifierFile]) {
    if (!known.has(inFolder(name))) throw invalid(`there is no ${inFolder(name)} in ${place}${list(paths)}`);
  }
  const adapters = [...paths].sort().flatMap((path) => {
    const isAdapter = path.startsWith(inFolder("")) && posix.basename(path) === adapterConfigFile;
    const weights = posix.join(posix.dirname(path), adapterWeightsFile);
    return isAdapter && known.has(weights) ? [path, weights] : [];
  });
  return [inFolder(mixtureClassifierFile), ...adapters, inFolder(configFile)];
}

/** Returns the folder of the X-LoRA: the repository itself, or the only X-LoRA folder in it. */
function theOne(paths: readonly string[], place: string): string {
  const folders = foldersOf(paths);
  const [only, ...others] = folders;
  if (only === undefined) throw invalid(`there is no X-LoRA in ${place}: ${configFile} is expected`);
  if (folders.includes("") || others.length === 0) return folders.includes("") ? "" : only;
  throw invalid(`there are several X-LoRAs in ${place}; name one of them${list(paths)}`);
}

function foldersOf(paths: readonly string[]): string[] {
  const configs = paths.filter((path) => posix.basename(path) === configFile).sort();
  return configs.map((path) => path.slice(0, -configFile.length).replace(/\/$/, ""));
}

function list(paths: readonly string[]): string {
  const named = foldersOf(paths).filter((folder) => folder !== "");
  return named.length === 0
    ? ""
    : `: ${named
        .slice(0, 30)
        .map((folder) => `"${folder}"`)
        .join(", ")}`;
}

function invalid(message: string): ServerError {
  return new ServerError("invalid_lora_adapter", message);
}
