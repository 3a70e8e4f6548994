// Work folder of `troupe agent` and `troupe run --agent`: the user's folder in which the tools read and write files.
import { existsSync, realpathSync, statSync } from "node:fs";
import { sep } from "node:path";
import { ServerError } from "../../runtime/errors.ts";
import { homeFolder } from "../../runtime/host/home.ts";
import type { Config } from "../config/config.ts";

/**
 * Returns the real path of the folder, without symbolic links; null if the command gives each session a separate folder. Throws
 * config_invalid if the path is not a folder, or if the folder contains the user's home folder, which may contain keys and
 * passwords.
 */
export function userFolder({ command, run }: Pick<Config, "command" | "run">): string | null {
  if (command !== "run") return null;
  const given = run.folder ?? process.cwd();
  const path = existingFolder(given);
  if (isWithin(homeFolder(), path)) {
    throw invalid(
      `folder expects a folder for the work of the agent, because its tools can read and write everything in it; got ${path}, which contains your home folder: name a folder in it`,
    );
  }
  return path;
}

/** Returns whether `inner` is `folder` or lies in it. If `inner` exists, its symbolic links are resolved. */
function isWithin(inner: string, folder: string): boolean {
  const path = existsSync(inner) ? realpathSync(inner) : inner;
  return (path + sep).startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

function existingFolder(path: string): string {
  try {
    const found = realpathSync(path);
    if (statSync(found).isDirectory()) return found;
  } catch (cause) {
    throw invalid(`folder expects a folder that exists; "${path}" cannot be read: ${(cause as Error).message}`);
  }
  throw invalid(`folder expects a folder; "${path}" is a file`);
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message, { param: "folder" });
}
