// API keys of `troupe serve`, from the settings `api_key` and `api_keys_file`. The file is read again when it changes. If its
// new content is invalid, the previous keys stay valid. Keys never appear in messages.
import { readFile, stat } from "node:fs/promises";
import { ApiKeys } from "../../http/server/access/api-keys.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { Config } from "../config/config.ts";
import { isApiKey } from "../config/kinds.ts";

const WATCH_EVERY_MS = 2000;
const READABLE_BY_ALL = 0o004;

/**
 * Reads the keys. Reads the file again when it changes, until the signal is aborted. Returns null if no keys are configured.
 * Throws config_invalid if the file cannot be read or has no keys.
 */
export async function openApiKeys(
  { apiKey, apiKeysFile }: Pick<Config["server"], "apiKey" | "apiKeysFile">,
  log: Logger,
  signal: AbortSignal,
  watchEveryMs: number = WATCH_EVERY_MS,
): Promise<ApiKeys | null> {
  const own = [apiKey ?? []].flat();
  if (apiKeysFile === null) return own.length === 0 ? null : new ApiKeys(own);
  // The version of the file is determined before its content is read. So if the file changes between the two steps, the next
  // poll detects the change.
  let known = await versionOf(apiKeysFile);
  const keys = new ApiKeys([...own, ...(await readKeys(apiKeysFile))]);
  await warnIfReadable(apiKeysFile, log);
  const poll = async () => {
    const version = await versionOf(apiKeysFile);
    if (version === known) return;
    known = version;
    try {
      const read = await readKeys(apiKeysFile);
      keys.replace([...own, ...read]);
      log.info({ file: apiKeysFile, keys: read.length }, "API keys read again");
    } catch (error) {
      log.error(`${(error as Error).message}; the former API keys stay valid`);
    }
  };
  const timer = setInterval(() => void poll(), watchEveryMs).unref();
  signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  return keys;
}

/** Returns a text that changes if the file changes. */
async function versionOf(path: string): Promise<string> {
  const { ino, mtimeMs, size } = await stat(path).catch(() => ({ ino: 0, mtimeMs: 0, size: -1 }));
  return `${ino} ${mtimeMs} ${size}`;
}

async function readKeys(path: string): Promise<readonly string[]> {
  const text = await readFile(path, "utf8").catch((cause: Error) => {
    throw invalid(`a readable file; got ${cause.message}`, cause);
  });
  const lines = text.split("\n").map((line) => line.trim());
  const keys = lines.filter((line) => line !== "" && !line.startsWith("#"));
  const wrong = lines.findIndex((line) => keys.includes(line) && !isApiKey(line));
  if (wrong >= 0)
    throw invalid(
      `keys of 1 to 512 printable ASCII characters without spaces; line ${wrong + 1} of ${path} is not one`,
    );
  if (keys.length === 0) throw invalid(`at least one key, one per line; ${path} has none`);
  return keys;
}

async function warnIfReadable(path: string, log: Logger): Promise<void> {
  if (process.platform === "win32") return;
  const { mode } = await stat(path);
  if ((mode & READABLE_BY_ALL) !== 0)
    log.warn({ file: path }, `all users of this machine can read the API keys; run "chmod 600 ${path}"`);
}

function invalid(expected: string, cause?: unknown): ServerError {
  return new ServerError("config_invalid", `api_keys_file expects ${expected}`, { param: "api_keys_file", cause });
}
