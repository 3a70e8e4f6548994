// Service: the models and the stored state of one server, and the HTTP apps over them. `troupe serve` and the embedding API
// assemble it in the same way, and stop it in the same order. It opens no port and handles no signals.
import type { ToolSource } from "../actors/api/agent/server-tools.ts";
import type { Tuner } from "../actors/api/tuning.ts";
import { InferenceService } from "../actors/front/inference-service.ts";
import { type App, type AppOptions, createApp } from "../http/app.ts";
import type { HttpConfig } from "../http/context.ts";
import type { EdgeServer } from "../http/server/edge.ts";
import { resolvesWithin } from "../runtime/clock.ts";
import type { EngineReport } from "../runtime/host/system.ts";
import type { Logger } from "../runtime/log/log.ts";
import { type OpenAgents, openAgents } from "./assembly/agents/agents.ts";
import { type ClosableObserver, openObservers } from "./assembly/observers.ts";
import { frontOptions, placeStopMs } from "./assembly/service-options.ts";
import { settingsInForce } from "./assembly/settings-in-force.ts";
import { openState, type State } from "./assembly/state.ts";
import type { Config } from "./config/config.ts";
import type { Progress } from "./progress.ts";
import { openApiKeys } from "./system/api-keys.ts";
import { checkOptions } from "./system/check-options.ts";
import { systemInspector } from "./system/inspector.ts";
import { createTuner } from "./tune/tuner.ts";

/** Time in milliseconds for clients to read the error of their interrupted responses. */
const lastWordsMs = 500;

/** Part of the program that serves requests through the service, such as the MCP server. */
export interface Drainable {
  /** Rejects new requests. Running ones continue. */
  drain(): void;
  close(): Promise<void>;
}

interface Parts {
  readonly config: Config;
  readonly log: Logger;
  readonly observers: readonly ClosableObserver[];
  readonly engines: readonly EngineReport[];
  readonly front: InferenceService;
  readonly state: State;
  readonly agents: OpenAgents;
  readonly apiKeys: Awaited<ReturnType<typeof openApiKeys>>;
  readonly tuner: Tuner;
  /** Aborted when the service has stopped. */
  readonly stopped: AbortController;
}

export class Service {
  readonly #parts: Parts;
  readonly #apps: App[] = [];

  private constructor(parts: Parts) {
    this.#parts = parts;
  }

  /**
   * Downloads missing models and opens the state. The models are loaded by `start`. `tools`: tools of an embedding program.
   */
  static async open(
    config: Config,
    log: Logger,
    progress: Progress,
    tools: readonly ToolSource[] = [],
  ): Promise<Service> {
    const observers = await openObservers(config, log);
    const stopped = new AbortController();
    try {
      const { engines, ...options } = await frontOptions(config, log, progress);
      const apiKeys = await openApiKeys(config.server, log, stopped.signal);
      const state = await openState(config, log);
      const front = new InferenceService(options);
      const agents = await openAgents(config, state, front, tools, log).catch(async (error) => {
        await state.stop(placeStopMs);
        throw error;
      });
      return new Service({
        config,
        log,
        observers,
        engines,
        front,
        state,
        agents,
        apiKeys,
        tuner: createTuner(config),
        stopped,
      });
    } catch (error) {
      stopped.abort();
      await Promise.allSettled(observers.map((observer) => observer.close()));
      throw error;
    }
  }

  get inference(): InferenceService {
    return this.#parts.front;
  }

  get apiKeys(): Parts["apiKeys"] {
    return this.#parts.apiKeys;
  }

  /** Creates an HTTP app over the models. Settings that are not given are taken from the configuration. */
  createApp(given: Partial<HttpConfig> = {}, extraRoutes: NonNullable<AppOptions["extraRoutes"]> = []): App {
    const { config, log, observers, engines, front, state, agents, apiKeys } = this.#parts;
    const app = createApp({
      apiKeys,
      inference: front,
      models: front,
      tuner: this.#parts.tuner,
      lora: front.lora,
      storedResponses: state.responses,
      agents: agents.loop,
      files: state.files,
      sessions: state.sessions,
      skills: state.skills,
      log,
      observers,
      system: systemInspector(checkOptions(config, null, engines)),
      settings: settingsInForce(config),
      config: { ...httpConfig(config), ...given },
      extraRoutes,
    });
    this.#apps.push(app);
    return app;
  }

  /** Loads the models. If this fails, stops the service and rejects. */
  async start(): Promise<void> {
    try {
      await this.#parts.front.start();
    } catch (error) {
      await this.#stopPlaces();
      throw error;
    }
  }

  /**
   * Stops accepting requests, waits for running ones until the deadline of the settings, and ends all threads and processes.
   */
  async stop(listeners: readonly EdgeServer[], others: readonly Drainable[] = []): Promise<void> {
    for (const one of [...this.#apps, ...others]) one.drain();
    await this.#closeListeners(listeners);
    for (const other of others) await other.close();
    for (const app of this.#apps) app.endBackground();
    // Ends running requests with an error. Their clients have lastWordsMs to read it.
    await this.#parts.front.stop(placeStopMs);
    await closeWithin(listeners, lastWordsMs);
    for (const listener of listeners) listener.forceClose();
    for (const app of this.#apps) await app.settled();
    await this.#stopPlaces();
  }

  async #stopPlaces(): Promise<void> {
    const { front, state, agents, observers, stopped } = this.#parts;
    stopped.abort();
    await front.stop(placeStopMs);
    await agents.stop(placeStopMs);
    await state.stop(placeStopMs);
    await Promise.allSettled(observers.map((observer) => observer.close()));
  }

  /**
   * Stops accepting connections and waits for running requests until the deadline. Requests that still run end when the worker
   * threads and processes stop.
   */
  async #closeListeners(listeners: readonly EdgeServer[]): Promise<void> {
    const { config, log } = this.#parts;
    const deadlineMs = config.troupe.shutdownDeadlineSecs * 1000;
    for (const listener of listeners) listener.close();
    if (await closeWithin(listeners, deadlineMs)) return;
    log.warn({ deadlineMs }, "shutdown deadline passed; running requests are ended");
  }
}

function closeWithin(listeners: readonly EdgeServer[], limitMs: number): Promise<boolean> {
  return resolvesWithin(limitMs, Promise.all(listeners.map((listener) => listener.closed)));
}

function httpConfig({ troupe, server }: Config): Partial<HttpConfig> {
  return {
    keepAliveMs: troupe.keepAliveInterval,
    readerStallMs: troupe.stalledReaderSecs * 1000,
    accessLog: !server.disableAccessLog,
    accessLogHealth: server.accessLogHealth,
    disableRequestIdHeader: server.disableRequestIdHeader,
    disableMetrics: server.disableMetrics,
    servesUi: !server.noUi,
    sharesModelFiles: troupe.shareModelFiles,
    host: server.host,
    allowedHosts: [troupe.allowedHosts ?? []].flat(),
    corsOrigins: troupe.corsOrigins === null ? null : [troupe.corsOrigins].flat(),
    unknownFields: troupe.unknownFields,
    allowCompletionsStream: troupe.allowCompletionsStream,
    maxBackgroundResponses: troupe.maxBackgroundResponses,
    allowLoraUpdates: server.allowRuntimeLoraUpdating,
    servesMcp: server.mcpPort !== null,
    servesLists: !troupe.disableLists,
  };
}
