// Installation of the coding agents: the npm packages of their programs for linux-x64, in the test cache. The name of the folder is
// a hash of the versions, so changed versions get a new folder.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { testCacheFolder } from "../../fixtures/test-cache.ts";

/**
 * Packages with exact versions, none of which has dependencies. The packages of Claude Code, Codex and opencode are those of one
 * platform, which the main packages choose; together with Qwen Code they have 1.1 GB.
 */
const packages = [
  "@anthropic-ai/claude-code-linux-x64@2.1.332",
  "@openai/codex@0.171.0-linux-x64",
  "@qwen-code/qwen-code@0.24.4",
  "opencode-linux-x64@1.18.33",
];
const installLimitMs = 8 * 60_000;

/** Returns the path of the folder node_modules with the packages. Installs them if they are not there. */
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

/** Runs no install scripts: the programs need none. The optional packages are parts such as audio, which no test uses. */
async function install(folder: string): Promise<void> {
  await writeFile(join(folder, "package.json"), JSON.stringify({ private: true }));
  const options = ["--ignore-scripts", "--omit=optional", "--no-package-lock", "--no-audit", "--no-fund"];
  await promisify(execFile)("npm", ["install", ...options, ...packages], { cwd: folder, timeout: installLimitMs });
}
