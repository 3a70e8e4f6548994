// Home folder of the user. Some users have no home folder, so it is looked up only when a path depends on it.
import { homedir } from "node:os";
import { isAbsolute } from "node:path";
import { ServerError } from "../errors.ts";

/** Returns the home folder. Throws config_invalid if there is none. */
export function homeFolder(): string {
  const found = systemHome();
  if (found !== null && isAbsolute(found)) return found;
  const message = "this user has no home folder: expected HOME, or both XDG_CACHE_HOME and XDG_STATE_HOME, to be set";
  throw new ServerError("config_invalid", message, { param: "HOME" });
}

/** Returns the home folder from the system; null if there is none or the system does not know the user. */
function systemHome(): string | null {
  try {
    return homedir();
  } catch {
    return null;
  }
}
