// Folder in which this process keeps prepared adapters. It is private to the user and removed at exit. Used by
// service-options.ts and bench.ts.
//
// The folder is in this program's cache if possible, because the system deletes old files from its temporary folder. A model
// that is reloaded weeks later still needs its adapters.
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defaultCacheDirectory } from "../../../engines/files/hub/model-cache.ts";
import { createProcessFolder } from "../../../runtime/host/process-folder.ts";

/** Creates the folder in the first parent that is writable. */
export function createAdapterFolder(parents: readonly [...string[], string] = usualParents()): string {
  return createProcessFolder("adapters", parents);
}

/** Returns the candidate parent folders: this program's cache, then the system's folder for temporary files. */
function usualParents(): [string, string] {
  return [join(defaultCacheDirectory(process.env), "adapters"), tmpdir()];
}
