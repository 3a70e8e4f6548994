// Owns where the user's home folder is, which some users have not. Asked where a folder's place depends on it, and only then.
import { homedir } from "node:os";
import { isAbsolute } from "node:path";
import { ServerError } from "../errors.ts";

/** Throws config_invalid where there is none. */
export function homeFolder(): string {
  const found = systemHome();
  if (found !== null && isAbsolute(found)) return found;
  const message = "this user has no home folder: expected HOME, or both XDG_CACHE_HOME and XDG_STATE_HOME, to be set";
  throw new ServerError("config_invalid", message, { param: "HOME" });
}

/** The system throws for a user that it does not know. */
function systemHome(): string | null {
  try {
    return homedir();
  } catch {
    return null;
  }
}
