// Work folder of `troupe agent` and `troupe run --agent`: the folder of the user in which the tools work.
import { existsSync, realpathSync, statSync } from "node:fs";
import { sep } from "node:path";
import { ServerError } from "../../runtime/errors.ts";
import { homeFolder } from "../../runtime/host/home.ts";
import type { Config } from "../config/config.ts";

/**
 * Returns the folder without links in its path; null: the command gives each session a separate folder. Throws
 * config_invalid if it is not a folder, or if it contains the user's home folder, which may have keys and passwords.
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

/** Returns whether a path is a folder or lies in it. Links in the path are followed if it exists. */
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
