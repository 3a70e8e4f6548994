// Name of the installed llama.cpp release. Reads a JSON file and loads no library, so any process may ask.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The llama.cpp release that the installed package names. */
export function bundledRelease(): string {
  const packageRoot = dirname(dirname(fileURLToPath(import.meta.resolve("node-llama-cpp"))));
  const file = join(packageRoot, "llama", "binariesGithubRelease.json");
  const { release } = JSON.parse(readFileSync(file, "utf8")) as { release: string };
  return release;
}
