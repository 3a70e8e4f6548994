// Options of the doctor's checks, from the settings.

import { hubCacheDirectory } from "../../engines/files/hub/api/hub-locations.ts";
import { listCachedModels } from "../../engines/files/hub/cached-models.ts";
import { defaultCacheDirectory } from "../../engines/files/hub/model-cache.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { EngineReport } from "../../runtime/host/system.ts";
import { defaultFolder } from "../assembly/state.ts";
import type { Config } from "../config/config.ts";
import type { CheckedFolder, CheckOptions } from "./checks.ts";

/** Returns the options. `isServing`: the caller is a server, so its own ports and its loaded models are not checked. */
export async function checkOptions(
  config: Config,
  isServing: boolean,
  engines: readonly EngineReport[],
): Promise<CheckOptions> {
  const { server, troupe, models } = config;
  const hubCache = unlessHomeless(() => hubCacheDirectory(process.env, models[0]?.device.hfCache ?? null));
  const cacheDirectory = unlessHomeless(() => defaultCacheDirectory(process.env));
  const { host, port, mcpPort } = server;
  const ports = [
    { setting: "port", host, port },
    ...(mcpPort === null ? [] : [{ setting: "mcp_port", host, port: mcpPort }]),
  ];
  // The cache is not required to be writable, because it can still be read.
  const folders = [
    { what: "hub_cache", path: hubCache, isRequired: false },
    { what: "model_cache", path: cacheDirectory, isRequired: false },
    ...chosenFolders(troupe),
  ];
  const common = { hubCache, folders, settingsProblem: null, threads: troupe.threads, engines };
  if (isServing) return { ...common, ports: [], models: [] };
  const cached =
    hubCache === null || cacheDirectory === null ? [] : await listCachedModels({ hubCache, cacheDirectory });
  const known = models.flatMap(({ modelId }) => {
    const found = cached.find(({ id }) => id === modelId);
    return found === undefined ? [] : [{ id: modelId, bytes: found.diskBytes }];
  });
  return { ...common, ports, models: known };
}

/**
 * Returns the folders from the settings. A configured folder is required. The default folder is optional, because without it
 * state is kept in memory.
 */
function chosenFolders({ stateDir, prefixCacheDir }: Config["troupe"]): CheckedFolder[] {
  const state = stateDir ?? unlessHomeless(() => defaultFolder(process.env));
  return [
    ...(stateDir === "none" ? [] : [{ what: "state_dir", path: state, isRequired: stateDir !== null }]),
    ...(prefixCacheDir === null ? [] : [{ what: "prefix_cache_dir", path: prefixCacheDir, isRequired: true }]),
  ];
}

/** Returns a path; null if it depends on a home folder and the user has none. */
function unlessHomeless(locate: () => string): string | null {
  try {
    return locate();
  } catch (error) {
    if (error instanceof ServerError) return null;
    throw error;
  }
}
