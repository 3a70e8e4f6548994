// Folders with the models on this machine, for commands that list them: the hub's cache, which `serve` lets the variable
// TROUPE_HF_CACHE name, and this program's cache.
import { hubCacheDirectory } from "../../engines/files/hub/api/hub-locations.ts";
import { defaultCacheDirectory } from "../../engines/files/hub/model-cache.ts";
import { entryAt } from "../config/keys.ts";

export function modelCaches(environment: NodeJS.ProcessEnv) {
  const [hfCache = null] = entryAt("device", "hfCache").variables.flatMap((name) => environment[name] || []);
  return {
    hubCache: hubCacheDirectory(environment, hfCache),
    cacheDirectory: defaultCacheDirectory(environment),
  };
}
