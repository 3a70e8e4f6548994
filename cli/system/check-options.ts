// Options of the checks of `troupe doctor`, from the settings.

import { hubCacheDirectory } from "../../engines/files/hub/api/hub-locations.ts";
import { defaultCacheDirectory } from "../../engines/files/hub/model-cache.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { EngineReport } from "../../runtime/host/system.ts";
import { defaultFolder } from "../assembly/state.ts";
import type { Config } from "../config/config.ts";
import type { CheckedFolder, CheckOptions } from "./checks.ts";

/**
 * Returns the options. `models`: models for which the free memory is checked. A server passes null; then neither models nor ports
 * are checked.
 */
export function checkOptions(
  config: Config,
  models: CheckOptions["models"] | null,
  engines: readonly EngineReport[],
): CheckOptions {
  const { server, troupe, mcpConfig } = config;
  const hubCache = unlessHomeless(() => hubCacheDirectory(process.env, config.models[0]?.device.hfCache ?? null));
  const cacheDirectory = unlessHomeless(() => defaultCacheDirectory(process.env));
  const { host, port, mcpPort } = server;
  const ports = [
    { setting: "port", host, port },
    ...(mcpPort === null ? [] : [{ setting: "mcp_port", host, port: mcpPort }]),
  ];
  // The two model caches are not required to be writable, because models in them can still be read.
  const folders = [
    { what: "hub_cache", path: hubCache, isRequired: false },
    { what: "model_cache", path: cacheDirectory, isRequired: false },
    ...chosenFolders(troupe),
  ];
  const common = { hubCache, folders, settingsProblem: null, threads: troupe.threads, engines, mcpConfig };
  return models === null ? { ...common, ports: [], models: [] } : { ...common, ports, models };
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
