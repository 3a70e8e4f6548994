// Installation of the coding agents' npm packages for linux-x64 into the test cache. The folder is named by a hash of the versions,
// so changed versions get a new folder.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { testCacheFolder } from "../../fixtures/test-cache.ts";

/**
 * Packages with exact versions, without dependencies. Claude Code, Codex and opencode have one package per platform;
 * these are the packages for linux-x64. The total size is 1.1 GB.
 */
const packages = [
  "@anthropic-ai/claude-code-linux-x64@2.1.332",
  "@openai/codex@0.171.0-linux-x64",
  "@qwen-code/qwen-code@0.24.4",
  "opencode-linux-x64@1.18.33",
];
const installLimitMs = 8 * 60_000;

/** Returns the path of the folder node_modules with the packages. Installs them if they are missing. */
export async function installedAgents(): Promise<string> {
  const name = createHash("sha256").update(packages.join()).digest("hex").slice(0, 12);
  const folder = join(testCacheFolder(), "test-coding-agents", name);
  const complete = join(folder, "complete");
  if (!existsSync(complete)) {
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    await install(folder);
    await writeFile(complete, "");
  }
  return join(folder, "node_modules");
}

/**
 * Installs the packages without install scripts and optional dependencies. The programs need no scripts, and no test
 * uses optional features such as audio.
 */
async function install(folder: string): Promise<void> {
  await writeFile(join(folder, "package.json"), JSON.stringify({ private: true }));
  const options = ["--ignore-scripts", "--omit=optional", "--no-package-lock", "--no-audit", "--no-fund"];
  await promisify(execFile)("npm", ["install", ...options, ...packages], { cwd: folder, timeout: installLimitMs });
}
