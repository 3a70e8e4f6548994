// Kernel files: functions that read /proc and /sys. A file or folder there disappears together with the process or group that
// it describes, so a missing file is not an error.
import { readdirSync, readFileSync } from "node:fs";

/** Returns the names in a folder; empty if the folder does not exist. */
export function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Returns the text of a file; empty if the file does not exist. */
export function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
