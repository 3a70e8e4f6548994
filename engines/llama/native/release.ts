// Name of the installed llama.cpp release. It is read from a JSON file without loading a library, so any process may
// ask for it.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** Returns the llama.cpp release that the installed package names. */
export function bundledRelease(): string {
  const packageRoot = dirname(dirname(fileURLToPath(import.meta.resolve("node-llama-cpp"))));
  const file = join(packageRoot, "llama", "binariesGithubRelease.json");
  const { release } = JSON.parse(readFileSync(file, "utf8")) as { release: string };
  return release;
}
