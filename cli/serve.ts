// `troupe serve`: the server. Downloads missing models, starts the worker threads and processes and the HTTP server, and prints
// the addresses. On a signal it shuts everything down in order.

import { InferenceService } from "../actors/front/inference-service.ts";
import { limitNativeHeap } from "../engines/llama/native/memory/native-heap.ts";
import { createApp } from "../http/app.ts";
import { MIN_OPEN_FILES } from "../http/server/connection-limit.ts";
import { type Listener, listen } from "../http/server/listen.ts";
import { resolvesWithin } from "../runtime/clock.ts";
import { ServerError } from "../runtime/errors.ts";
import { openFileLimit } from "../runtime/host/open-files.ts";
import { createLogger, type Logger } from "../runtime/log/log.ts";
import { openApiKeys } from "./assembly/api-keys.ts";
import type { McpListener, McpParts } from "./assembly/mcp.ts";
import { type ClosableObserver, openObservers } from "./assembly/observers.ts";
import { frontOptions, placeStopMs } from "./assembly/service-options.ts";
import { openState } from "./assembly/state.ts";
import type { Config } from "./config/config.ts";
import { greeting } from "./greeting.ts";
import { createProgress } from "./progress.ts";
import { checkOptions } from "./system/check-options.ts";
import { systemInspector } from "./system/inspector.ts";

/** Time in milliseconds for clients to read the error of their interrupted responses. */
const lastWordsMs = 500;
/** Maximum free memory in bytes that an arena of the native heap (malloc) keeps. */
const keptHeapBytes = 2 ** 20;

export async function serve(config: Config): Promise<void> {
  checkOpenFiles();
  const log = createLogger({ level: config.troupe.logLevel, format: config.server.accessLogFormat });
  const observers = await openObservers(config, log);
  try {
    await serveObserved(config, log, observers);
  } catch (error) {
    await Promise.allSettled(observers.map((observer) => observer.close()));
    throw error;
  }
}

/** Checks the limit of open files at start, because a low limit would make the server fail later. */
function checkOpenFiles(): void {
  const limit = openFileLimit();
  if (limit >= MIN_OPEN_FILES) return;
  const message = `expected a limit of at least ${MIN_OPEN_FILES} open files; got ${limit}`;
  throw new ServerError("config_invalid", `${message}; raise the limit, for example with "ulimit -n 4096"`);
}

/** Starts the server. Resolves when all models are loaded. The shutdown closes the observers. */
async function serveObserved(config: Config, log: Logger, observers: readonly ClosableObserver[]): Promise<void> {
  const { troupe, server } = config;
  const progress = createProgress();
  const { engines, ...options } = await frontOptions(config, log, progress);
  const front = new InferenceService(options);
  const state = await openState(config, log);
  const apiKeys = await openApiKeys(server, log);
  const app = createApp({
    apiKeys,
    inference: front,
    models: front,
    lora: front.lora,
    storedResponses: state.responses,
    log,
    observers,
    system: systemInspector(checkOptions(config, null, engines)),
    config: {
      keepAliveMs: troupe.keepAliveInterval,
      readerStallMs: troupe.stalledReaderSecs * 1000,
      accessLog: !server.disableAccessLog,
      accessLogHealth: server.accessLogHealth,
      disableRequestIdHeader: server.disableRequestIdHeader,
      disableMetrics: server.disableMetrics,
      host: server.host,
      allowedHosts: [troupe.allowedHosts ?? []].flat(),
      corsOrigins: troupe.corsOrigins === null ? null : [troupe.corsOrigins].flat(),
      maxBackgroundResponses: troupe.maxBackgroundResponses,
      allowCompletionsStream: troupe.allowCompletionsStream,
      allowLoraUpdates: server.allowRuntimeLoraUpdating,
      servesMcp: server.mcpPort !== null,
    },
  });
  const { host, port } = server;
  const { edge, maxBodyBytesInFlight } = troupe;
  const requestTimeoutMs = troupe.requestTimeoutSecs * 1000;
  const sockets = {
    maxOpen: troupe.maxWebsockets,
    idleMs: troupe.websocketIdleSecs * 1000,
    lifetimeMs: troupe.websocketLifetimeSecs * 1000,
  };
  const listener = await listen(app, { host, port, edge, maxBodyBytesInFlight, requestTimeoutMs, sockets, log });
  const mcp = await mcpOf(config, { app, apiKeys, inference: front, log });
  const listeners = mcp === null ? [listener] : [listener, mcp.listener];
  const stop = async (): Promise<void> => {
    app.drain();
    mcp?.mcp.drain();
    await closeListeners(listeners, troupe.shutdownDeadlineSecs * 1000, log);
    await mcp?.mcp.close();
    app.endBackground();
    // Ends running requests with an error. Their clients have lastWordsMs to read it.
    await front.stop(placeStopMs);
    await closeWithin(listeners, lastWordsMs);
    for (const listener of listeners) listener.forceClose();
    await app.settled();
    await state.stop(placeStopMs);
    await Promise.all(observers.map((observer) => observer.close()));
  };
  stopOnSignals(stop, log);
  try {
    await Promise.all([front.start(), limitNativeHeap(keptHeapBytes)]);
  } catch (error) {
    progress.stop();
    for (const each of listeners) each.forceClose();
    await mcp?.mcp.close();
    await front.stop(placeStopMs);
    await state.stop(placeStopMs);
    throw error;
  }
  progress.stop();
  const mcpPort = mcp?.listener.port ?? null;
  const { defaultModelId } = config;
  const modelIds = config.models.map(({ modelId }) => modelId);
  process.stdout.write(
    greeting({ host, port: listener.port, mcpPort, models: front.models(), defaultModelId, modelIds }),
  );
}

/** Starts the MCP server; null if mcp_port is not set. */
async function mcpOf(config: Config, parts: McpParts): Promise<McpListener | null> {
  const { mcpPort } = config.server;
  if (mcpPort === null) return null;
  const { listenMcp } = await import("./assembly/mcp.ts");
  return listenMcp(config, mcpPort, parts);
}

/**
 * Stops accepting connections and waits for running requests until the deadline. Requests that still run end when the worker
 * threads and processes stop.
 */
async function closeListeners(listeners: readonly Listener[], deadlineMs: number, log: Logger): Promise<void> {
  for (const listener of listeners) listener.close();
  if (await closeWithin(listeners, deadlineMs)) return;
  log.warn({ deadlineMs }, "shutdown deadline passed; running requests are ended");
}

function closeWithin(listeners: readonly Listener[], limitMs: number): Promise<boolean> {
  return resolvesWithin(limitMs, Promise.all(listeners.map((listener) => listener.closed)));
}

/** Handles signals. The first one starts a graceful shutdown, a second one exits at once. */
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
