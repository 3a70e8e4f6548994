// Installed llama.cpp libraries: their folder and their release. Both are found without loading a library, so every
// process may call these functions.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { isInstalled } from "../../../runtime/host/optional-packages.ts";

/** Package with the libraries for GPUs, and for systems other than Linux. It is installed on request. */
export const gpuPackage = "node-llama-cpp";

/** Returns the llama.cpp release that the installed packages name; null if none is installed. */
export function bundledRelease(): string | null {
  if (isInstalled(gpuPackage)) {
    const packageRoot = dirname(dirname(fileURLToPath(import.meta.resolve(gpuPackage))));
    return readRelease(join(packageRoot, "llama", "binariesGithubRelease.json"));
  }
  const folder = prebuiltFolder();
  return folder === null ? null : readRelease(join(folder, "_nlcBuildMetadata.json"));
}

function readRelease(file: string): string {
  const { release, buildOptions } = JSON.parse(readFileSync(file, "utf8")) as {
    release?: string;
    buildOptions?: { llamaCpp: { release: string } };
  };
  return release ?? buildOptions?.llamaCpp.release ?? "unknown";
}

/**
 * Returns the folder of the libraries for the CPU; null if there is none. Linux only, because the libraries for other
 * systems always include GPU support.
 */
export function prebuiltFolder(): string | null {
  if (process.platform !== "linux") return null;
  const build = `linux-${process.arch === "arm" ? "armv7l" : process.arch}`;
  try {
    const { resolve } = createRequire(import.meta.url);
    return join(dirname(resolve(`@node-llama-cpp/${build}`)), "..", "bins", build);
  } catch {
    return null;
  }
}
