// Python environments for tests: virtual environments with the packages of a requirements file, in the model cache. The folder
// is named by a hash of the requirements, so changed requirements get a new environment.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { testCacheFolder } from "../../fixtures/test-cache.ts";

/** Folder of the Python files and requirements files. They are not compiled, so they are in the source tree. */
export const pythonFolder = fileURLToPath(new URL("../../../../test/server/python/cases/", import.meta.url));

const clientRequirements = join(pythonFolder, "requirements.txt");
const installLimitMs = 8 * 60_000;
const execute = promisify(execFile);

/** Returns the path of the Python executable of the environment for a requirements file. Creates the environment if it does not exist. */
export async function pythonEnvironment(requirements = clientRequirements): Promise<string> {
  const { stdout } = await execute("python3", ["-c", "import sys; print(sys.version)"]);
  const name = createHash("sha256").update(readFileSync(requirements)).update(stdout).digest("hex").slice(0, 12);
  const folder = join(testCacheFolder(), "test-python", name);
  const python = join(folder, process.platform === "win32" ? "Scripts/python.exe" : "bin/python");
  const complete = join(folder, "complete");
  if (!existsSync(complete)) {
    await rm(folder, { recursive: true, force: true });
    await install(folder, python, requirements);
    await writeFile(complete, "");
  }
  return python;
}

/**
 * Creates the environment without pip, because on Debian an environment with pip needs another package. The system's pip
 * installs the packages. The requirements list every package, so pip resolves no dependencies.
 */
async function install(folder: string, python: string, requirements: string): Promise<void> {
  await execute("python3", ["-m", "venv", "--without-pip", folder]);
  const options = ["--quiet", "--no-deps", "--no-compile", "--only-binary", ":all:"];
  await execute("python3", ["-m", "pip", "--python", python, "install", ...options, "-r", requirements], {
    timeout: installLimitMs,
  });
}
