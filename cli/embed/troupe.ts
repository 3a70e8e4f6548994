// Embedding API: a troupe server inside another program. It opens no port, handles no signals and never ends the process.
import type { EdgeServer } from "../../http/server/edge.ts";
import { ServerError } from "../../runtime/errors.ts";
import { createLogger } from "../../runtime/log/log.ts";
import type { TroupeSettings } from "../config/settings.ts";
import { configWithDefault } from "../default-config.ts";
import { createLines } from "../progress.ts";
import { Service } from "../service.ts";
import { mountRouter, type Router, type RouterOptions } from "./router.ts";
import { customTools } from "./tools/custom-tools.ts";
import type { Tool } from "./tools/tool.ts";

/** Settings of troupe, and the tools of the embedding program. */
export interface EmbedSettings extends TroupeSettings {
  /** Tools that models may call; made with `tool`. */
  readonly tools?: readonly Tool[];
}

/**
 * An embedded server: its loaded models, and a router with default options, whose `fetch` and `nodeHandler` answer HTTP
 * requests.
 */
export interface Troupe extends Router {
  /** Names of the models in requests. The first one is the default, unless the settings name another. */
  readonly models: readonly string[];
  /** Creates a router, for example with a base path. */
  router(options?: RouterOptions): Router;
  /**
   * Stops accepting requests, waits for running requests (at most `shutdownDeadlineSecs`), and ends all threads and processes,
   * so that nothing keeps the embedding program from exiting.
   */
  close(): Promise<void>;
}

/**
 * Loads the models of the settings. Missing models are downloaded. Rejects with an Error whose code is `config_invalid` and
 * whose message names the invalid setting or tool. Stored responses are in memory, unless `troupe.stateDir` is set.
 */
export async function createTroupe({ tools = [], ...settings }: EmbedSettings = {}): Promise<Troupe> {
  const own = { ...settings, troupe: { ...settings.troupe, stateDir: settings.troupe?.stateDir ?? "none" } };
  // The environment is not read, because variables such as OTEL_EXPORTER_OTLP_ENDPOINT configure the embedding program.
  const request = { command: "serve", flags: {}, environment: {}, settings: own } as const;
  const config = await configWithDefault(request);
  const log = createLogger({ level: config.troupe.logLevel, format: config.server.accessLogFormat });
  const service = await Service.open(
    config,
    log,
    createLines((line) => log.info(line)),
    [customTools(tools, log)],
  );
  await service.start();
  const servers: EdgeServer[] = [];
  let closed: Promise<void> | null = null;
  const router = (options: RouterOptions = {}): Router => {
    if (closed !== null) throw new ServerError("draining", "this troupe is closed; create another one");
    const { mount, ...handlers } = mountRouter(service, config, options);
    servers.push(mount.server);
    return handlers;
  };
  return {
    ...router(),
    models: config.models.map(({ id }) => id),
    router,
    close: () => {
      closed ??= service.stop(servers);
      return closed;
    },
  };
}
