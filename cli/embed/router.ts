// Router: handlers with which another server serves the routes of an embedded troupe. All routers of a troupe share its models.
import type { IncomingMessage, ServerResponse } from "node:http";
import { TrustedProxies } from "../../http/server/access/trusted-proxies.ts";
import { Mount } from "../../http/server/mount/mount.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Config } from "../config/config.ts";
import type { Service } from "../service.ts";
import { type ExtraRoute, extraRoutes } from "./extra-routes.ts";

export interface RouterOptions {
  /** Path prefix of the requests, such as "/ai"; default: no prefix. Leave it out if the framework removes the prefix. */
  readonly basePath?: string;
  /** Whether to serve the API explorer and the OpenAPI document; default: true. */
  readonly docs?: boolean;
  /** Whether to serve /metrics; default: true. */
  readonly metrics?: boolean;
  /** Whether to serve the web UI at /ui; default: true. */
  readonly ui?: boolean;
  /** Whether requests may load and unload LoRA adapters; default: the setting with the same name. */
  readonly allowRuntimeLoraUpdating?: boolean;
  /** Routes of the embedding program, in addition to troupe's routes. */
  readonly routes?: readonly ExtraRoute[];
}

export interface Router {
  /** Answers a web Request. `address` identifies a client without an API key, for fair scheduling. */
  readonly fetch: (request: Request, client?: { readonly address?: string | undefined }) => Promise<Response>;
  /** Answers a request of node:http or Express. Calls `next` for a path outside the base path. */
  readonly nodeHandler: (request: IncomingMessage, response: ServerResponse, next?: () => void) => void;
}

export function mountRouter(
  service: Service,
  { troupe, server }: Config,
  options: RouterOptions,
): Router & { mount: Mount } {
  const { basePath = "", docs = true, metrics = true, ui = true, routes = [] } = options;
  if (!/^(\/[^/?#]+)*$/.test(basePath)) {
    throw new ServerError(
      "config_invalid",
      `basePath expects a path such as "/ai", without "/" at its end; got "${basePath}"`,
    );
  }
  const app = service.createApp(
    {
      basePath,
      servesDocs: docs,
      servesMetrics: metrics,
      servesUi: ui,
      allowLoraUpdates: options.allowRuntimeLoraUpdating ?? server.allowRuntimeLoraUpdating,
    },
    extraRoutes(routes, troupe.stalledReaderSecs * 1000),
  );
  const { maxBodyBytesInFlight, requestTimeoutSecs } = troupe;
  const mount = new Mount(app.handle, {
    basePath,
    admit: app.admit,
    spoolFolder: app.spoolFolder,
    maxBodyBytesInFlight,
    requestTimeoutMs: requestTimeoutSecs * 1000,
    addressOf: new TrustedProxies([troupe.trustedProxies ?? []].flat(), service.log).addressOf,
  });
  return {
    mount,
    fetch: (request, client) => mount.fetch(request, client?.address),
    nodeHandler: (request, response, next) => mount.node(request, response, next),
  };
}
