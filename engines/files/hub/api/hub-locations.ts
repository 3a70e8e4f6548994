// Hub locations: the hub's address and its local files. Both come from the environment variables that the hub's Python
// library also reads, so that both programs use the same files. No disk or network access.
import { join } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";
import { homeFolder } from "../../../../runtime/host/home.ts";
import type { Environment } from "../download/fetch-options.ts";

const defaultEndpoint = "https://huggingface.co";

/** Returns the folder of the hub's cache; `chosen` overrides the environment. */
export function hubCacheDirectory(environment: Environment, chosen: string | null = null): string {
  const named = chosen || environment.HF_HUB_CACHE || environment.HUGGINGFACE_HUB_CACHE;
  return named ? expandHome(named) : join(hubHome(environment), "hub");
}

/** Returns the path of the token file, which `troupe login` and the Python library share. */
export function tokenPath(environment: Environment): string {
  const named = environment.HF_TOKEN_PATH;
  return named ? expandHome(named) : join(hubHome(environment), "token");
}

/** Whether the environment forbids requests to the hub. */
export function isOffline(environment: Environment): boolean {
  return ["1", "on", "yes", "true"].includes((environment.HF_HUB_OFFLINE ?? "").trim().toLowerCase());
}

/**
 * Returns the hub's address without a trailing slash. The error for a bad address does not show the address, because it
 * may contain a password.
 */
export function hubEndpoint(environment: Environment): string {
  const named = environment.HF_ENDPOINT || defaultEndpoint;
  const url = URL.canParse(named) ? new URL(named) : null;
  const isPlain = url !== null && /^https?:$/.test(url.protocol) && !url.username && !url.password && !url.search;
  if (isPlain) return named.replace(/\/+$/, "");
  throw new ServerError("config_invalid", "HF_ENDPOINT expects an http or https address without user and password");
}

function hubHome(environment: Environment): string {
  if (environment.HF_HOME) return expandHome(environment.HF_HOME);
  const caches = environment.XDG_CACHE_HOME ? expandHome(environment.XDG_CACHE_HOME) : join(homeFolder(), ".cache");
  return join(caches, "huggingface");
}

export function expandHome(path: string): string {
  return /^~(?=$|[\\/])/.test(path) ? homeFolder() + path.slice(1) : path;
}
