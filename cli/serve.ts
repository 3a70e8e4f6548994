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
import { unlessEnded } from "./run/signals.ts";
import { Service } from "./service.ts";

/** Maximum free memory in bytes that an arena of the native heap (malloc) keeps. */
const keptHeapBytes = 2 ** 20;

/** Starts the server. Resolves when all models are loaded. */
export async function serve(config: Config): Promise<void> {
  checkOpenFiles();
  const log = createLogger({ level: config.troupe.logLevel, format: config.server.accessLogFormat });
  const signals = new Signals(log);
  const progress = createProgress(signals.starting);
  const service = await Service.open(config, log, progress).catch(unlessEnded(signals.starting));
  if (service === null || signals.starting.aborted) {
    progress.stop();
    await service?.stop([]);
    signals.end();
    return;
  }
  const start = () => Promise.all([service.start(), limitNativeHeap(keptHeapBytes)]);
  // If the port is shared with the previous server, that server answers requests until the models are loaded.
  if (config.troupe.reusePort) {
    signals.onSignal(() => service.stop([]));
    await start();
    if (signals.isStopping) return;
  }
  let listeners: Listeners;
  try {
    listeners = await openListeners(config, service, log);
  } catch (error) {
    await service.stop([]);
    throw error;
  }
  const { listener, mcp } = listeners;
  const edges = mcp === null ? [listener] : [listener, mcp.listener];
  signals.onSignal(() => service.stop(edges, mcp === null ? [] : [mcp.mcp]));
  try {
    if (!config.troupe.reusePort) await start();
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
  const { edge, maxBodyBytesInFlight, reusePort: sharesPort } = troupe;
  const requestTimeoutMs = troupe.requestTimeoutSecs * 1000;
  const sockets = {
    maxOpen: troupe.maxWebsockets,
    idleMs: troupe.websocketIdleSecs * 1000,
    lifetimeMs: troupe.websocketLifetimeSecs * 1000,
  };
  const app = service.createApp();
  const listener = await listen(app, {
    host,
    port,
    sharesPort,
    edge,
    maxBodyBytesInFlight,
    requestTimeoutMs,
    sockets,
    trustedProxies: [troupe.trustedProxies ?? []].flat(),
    log,
  });
  try {
    const { apiKeys, inference, mcpSessions: shared } = service;
    return { listener, mcp: await mcpOf(config, { app, apiKeys, inference, log, shared }) };
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

/**
 * Handles the signals of the command. While the server is starting, the first signal ends the start: a download or a conversion
 * stops, and the next start continues it. While the server is running, the first signal starts a graceful shutdown. A second
 * signal exits immediately.
 */
class Signals {
  readonly #log: Logger;
  readonly #starting = new AbortController();
  #isStopping = false;
  #stop: (() => Promise<void>) | null = null;

  constructor(log: Logger) {
    this.#log = log;
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => this.#handle(signal));
  }

  /** Aborted by a signal that arrives before the server is running. */
  get starting(): AbortSignal {
    return this.#starting.signal;
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** Sets the function that later signals call to shut the server down. */
  onSignal(stop: () => Promise<void>): void {
    this.#stop = stop;
    // A signal may have arrived between the end of the start and this call.
    if (this.#isStopping) this.#shutDown(stop);
  }

  /** Ends the process, because a signal has ended the start. */
  end(): void {
    this.#log.info("stopped");
    process.exit(0);
  }

  #handle(signal: NodeJS.Signals): void {
    if (this.#isStopping) process.exit(1);
    this.#isStopping = true;
    const kept =
      this.#stop === null ? "what is downloaded or converted so far is kept" : "running requests finish first";
    this.#log.info({ signal }, `stopping: ${kept}; send the signal again to stop at once`);
    if (this.#stop === null) this.#starting.abort();
    else this.#shutDown(this.#stop);
  }

  #shutDown(stop: () => Promise<void>): void {
    stop().then(
      () => this.end(),
      (error: unknown) => {
        this.#log.error({ err: error }, "stopping failed");
        process.exit(1);
      },
    );
  }
}
