// Optional packages: packages that are not installed with troupe, because they are large and few users need
// them. Their versions are the optional peer dependencies in package.json. A message about a missing package
// names the command that installs it.
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * Packages that are installed with --ignore-scripts. The install script of onnxruntime-node would download CUDA libraries,
 * which troupe does not use. audio-decode needs no install script.
 */
const scriptless: ReadonlySet<string> = new Set(["onnxruntime-node", "audio-decode"]);

/** Folder of troupe's package.json: a checkout, or `node_modules/troupe` of another project. */
const ownFolder = fileURLToPath(new URL("../../../", import.meta.url)).replace(/[\\/]$/, "");
const require = createRequire(import.meta.url);

export function isInstalled(name: string): boolean {
  try {
    require.resolve(name);
    return true;
  } catch {
    return false;
  }
}

/** Returns the command that installs these packages where troupe finds them. */
export function installCommand(names: readonly string[], folder: string = ownFolder): string {
  const packageFile = readFileSync(join(ownFolder, "package.json"), "utf8");
  const { peerDependencies } = JSON.parse(packageFile) as { peerDependencies: Record<string, string> };
  const flags = names.every((name) => scriptless.has(name)) ? " --ignore-scripts" : "";
  const packages = names.map((name) => `${name}@${peerDependencies[name]}`).join(" ") + flags;
  const parent = dirname(folder);
  // A global node_modules folder has no package.json next to it.
  if (basename(parent) === "node_modules" && !existsSync(join(parent, "..", "package.json"))) {
    return `npm install --global ${packages}`;
  }
  const project = basename(parent) === "node_modules" ? dirname(parent) : folder;
  return `npm install ${packages}${project === process.cwd() ? "" : ` (in ${project})`}`;
}
