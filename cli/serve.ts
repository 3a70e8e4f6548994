// `troupe serve`: the server. Assembles the service, starts the HTTP server, and prints the addresses. On a signal it shuts
// everything down in order.

import { limitNativeHeap } from "../engines/llama/native/memory/native-heap.ts";
import { MIN_OPEN_FILES } from "../http/server/connection-limit.ts";
import { type Listener, listen } from "../http/server/listen.ts";
import { ServerError } from "../runtime/errors.ts";
import { openFileLimit } from "../runtime/host/open-files.ts";
import { createLogger, type Logger } from "../runtime/log/log.ts";
import type { McpListener, McpParts } from "./assembly/mcp.ts";
import type { Config } from "./config/config.ts";
import { greeting } from "./greeting.ts";
import { createProgress } from "./progress.ts";
import { Service } from "./service.ts";

/** Maximum free memory in bytes that an arena of the native heap (malloc) keeps. */
const keptHeapBytes = 2 ** 20;

/** Starts the server. Resolves when all models are loaded. */
export async function serve(config: Config): Promise<void> {
  checkOpenFiles();
  const log = createLogger({ level: config.troupe.logLevel, format: config.server.accessLogFormat });
  const progress = createProgress();
  const service = await Service.open(config, log, progress);
  let listeners: Listeners;
  try {
    listeners = await openListeners(config, service, log);
  } catch (error) {
    await service.stop([]);
    throw error;
  }
  const { listener, mcp } = listeners;
  const edges = mcp === null ? [listener] : [listener, mcp.listener];
  stopOnSignals(() => service.stop(edges, mcp === null ? [] : [mcp.mcp]), log);
  try {
    await Promise.all([service.start(), limitNativeHeap(keptHeapBytes)]);
  } catch (error) {
    progress.stop();
    for (const edge of edges) edge.forceClose();
    await mcp?.mcp.close();
    throw error;
  }
  progress.stop();
  const { host, noUi } = config.server;
  const mcpPort = mcp?.listener.port ?? null;
  const { defaultModelId } = config;
  const modelIds = config.models.map(({ modelId }) => modelId);
  const models = service.inference.models();
  process.stdout.write(
    greeting({ host, port: listener.port, mcpPort, hasUi: !noUi, models, defaultModelId, modelIds }),
  );
}

/** Checks the limit of open files at start, because a low limit would make the server fail later. */
function checkOpenFiles(): void {
  const limit = openFileLimit();
  if (limit >= MIN_OPEN_FILES) return;
  const message = `expected a limit of at least ${MIN_OPEN_FILES} open files; got ${limit}`;
  throw new ServerError("config_invalid", `${message}; raise the limit, for example with "ulimit -n 4096"`);
}

interface Listeners {
  readonly listener: Listener;
  readonly mcp: McpListener | null;
}

async function openListeners(config: Config, service: Service, log: Logger): Promise<Listeners> {
  const { troupe, server } = config;
  const { host, port } = server;
  const { edge, maxBodyBytesInFlight } = troupe;
  const requestTimeoutMs = troupe.requestTimeoutSecs * 1000;
  const sockets = {
    maxOpen: troupe.maxWebsockets,
    idleMs: troupe.websocketIdleSecs * 1000,
    lifetimeMs: troupe.websocketLifetimeSecs * 1000,
  };
  const app = service.createApp();
  const listener = await listen(app, { host, port, edge, maxBodyBytesInFlight, requestTimeoutMs, sockets, log });
  try {
    return { listener, mcp: await mcpOf(config, { app, apiKeys: service.apiKeys, inference: service.inference, log }) };
  } catch (error) {
    listener.forceClose();
    throw error;
  }
}

/** Starts the MCP server; null if mcp_port is not set. */
async function mcpOf(config: Config, parts: McpParts): Promise<McpListener | null> {
  const { mcpPort } = config.server;
  if (mcpPort === null) return null;
  const { listenMcp } = await import("./assembly/mcp.ts");
  return listenMcp(config, mcpPort, parts);
}

/** Handles signals. The first signal starts a graceful shutdown; a second signal exits immediately. */
function stopOnSignals(stop: () => Promise<void>, log: Logger): void {
  let isStopping = false;
  const onSignal = (signal: NodeJS.Signals) => {
    if (isStopping) process.exit(1);
    isStopping = true;
    log.info({ signal }, "stopping: running requests finish first; send the signal again to stop at once");
    stop().then(
      () => {
        log.info("stopped");
        process.exit(0);
      },
      (error: unknown) => {
        log.error({ err: error }, "stopping failed");
        process.exit(1);
      },
    );
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
}
