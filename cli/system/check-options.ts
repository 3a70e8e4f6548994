// Owns what the settings say that the doctor is to look at.
import { listCachedModels } from "../../engines/hub/cached-models.ts";
import { hubCacheDirectory } from "../../engines/hub/hub-locations.ts";
import { defaultCacheDirectory } from "../../engines/hub/model-cache.ts";
import type { Config } from "../../runtime/config/config.ts";
import { defaultFolder } from "../state.ts";
import type { CheckOptions } from "./checks.ts";

/** `isServing`: the ports are taken by the one who asks, and the models are in memory. */
export async function checkOptions(config: Config, isServing: boolean): Promise<CheckOptions> {
  const { server, troupe, models } = config;
  const hubCache = hubCacheDirectory(process.env, models[0]?.device.hfCache ?? null);
  const cacheDirectory = defaultCacheDirectory(process.env);
  const folders = [
    { what: "hub_cache", path: hubCache },
    { what: "model_cache", path: cacheDirectory },
    ...(troupe.stateDir === "none" ? [] : [{ what: "state_dir", path: troupe.stateDir ?? defaultFolder(process.env) }]),
    ...(troupe.prefixCacheDir === null ? [] : [{ what: "prefix_cache_dir", path: troupe.prefixCacheDir }]),
  ];
  const { host, port, mcpPort } = server;
  const ports = [
    { setting: "port", host, port },
    ...(mcpPort === null ? [] : [{ setting: "mcp_port", host, port: mcpPort }]),
  ];
  if (isServing) return { hubCache, folders, ports: [], models: [], threads: troupe.threads };
  const cached = await listCachedModels({ hubCache, cacheDirectory });
  const known = models.flatMap(({ modelId }) => {
    const found = cached.find(({ id }) => id === modelId);
    return found === undefined ? [] : [{ id: modelId, bytes: found.diskBytes }];
  });
  return { hubCache, folders, ports, models: known, threads: troupe.threads };
}
