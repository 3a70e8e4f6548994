// Format of a state folder: a number in a file beside the database. By it, a release refuses a folder that it would misread.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ServerError } from "../../errors.ts";
import { makeFolder } from "../../host/make-folder.ts";

/** Format that this release writes. To be raised when earlier releases would misread or lose what is written. */
export const stateFormat = 1;
const fileName = "format";

/** Throws config_invalid if the state in the folder was written in a later format. Otherwise, marks the folder with the own format. */
export function checkFormat(folder: string): void {
  const path = join(folder, fileName);
  const found = textOf(path);
  // Folders of releases without formats have no such file; an empty one was left by a crash or a full disk.
  if (found !== "" && !(Number(found) <= stateFormat)) {
    const message =
      `the state in ${folder} has the format ${JSON.stringify(found)} of a later release; this one reads formats up to ${stateFormat}: ` +
      "start the later release, or name another folder as state_dir";
    throw new ServerError("config_invalid", message, { param: "state_dir" });
  }
  if (found === String(stateFormat)) return;
  try {
    makeFolder(folder, 0o700);
    writeFileSync(path, `${stateFormat}\n`, { mode: 0o600 });
  } catch {
    // A full disk must not prevent a start. The next start tries again.
  }
}

/** Returns the beginning of the file; "" if it cannot be read. */
function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8").trim().slice(0, 20);
  } catch {
    return "";
  }
}
