// Service: the models and the stored state of one server, and the HTTP apps over them. Used by `troupe serve` and by the
// embedding API. It opens no port and handles no signals.
import { readFile } from "node:fs/promises";
import { basename, resolve } from "node:path";
import type { Files } from "../actors/api/agent/files.ts";
import type { ToolSource } from "../actors/api/agent/server-tools.ts";
import type { Tuner } from "../actors/api/tuning.ts";
import { InferenceService } from "../actors/front/inference-service.ts";
import { SharedAdapters } from "../actors/lora-registry/shared-adapters.ts";
import { type MlcModel, readMlcFolder } from "../engines/files/mlc-folder.ts";
import { type App, type AppOptions, createApp } from "../http/app.ts";
import type { HttpConfig } from "../http/context.ts";
import type { SharedSessions } from "../http/mcp/sessions.ts";
import type { EdgeServer } from "../http/server/edge.ts";
import { resolvesWithin } from "../runtime/clock.ts";
import { ServerError } from "../runtime/errors.ts";
import type { Logger } from "../runtime/log/log.ts";
import { type OpenAgents, openAgents } from "./assembly/agents/agents.ts";
import { DownloadedModels } from "./assembly/models/downloaded-models.ts";
import type { ModelBuilder } from "./assembly/models/model-builder.ts";
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

/** Time in ms that clients have to read the error with which their interrupted responses end. */
const lastWordsMs = 500;

/** Part of the program that serves requests through the service, such as the MCP server. */
export interface Drainable {
  /**
   * Ends connections that would otherwise delay the shutdown until its time limits, such as streams of clients that only
   * listen. Requests continue.
   */
  drain(): void;
  close(): Promise<void>;
}

interface Parts {
  readonly config: Config;
  readonly log: Logger;
  readonly observers: readonly ClosableObserver[];
  readonly builder: ModelBuilder;
  /** Models that the server downloads at the request of clients; null if clients may not request downloads. */
  readonly library: DownloadedModels | null;
  /** Models that browsers may download and run themselves. */
  readonly webModels: readonly MlcModel[];
  readonly front: InferenceService;
  readonly state: State;
  /** LoRA adapters that all replicas share; null if the adapters of this server are not shared. */
  readonly adapters: SharedAdapters | null;
  readonly agents: OpenAgents;
  readonly apiKeys: Awaited<ReturnType<typeof openApiKeys>>;
  readonly tuner: Tuner;
  /** Aborted when the service has stopped. */
  readonly stopped: AbortController;
}

export class Service {
  readonly #parts: Parts;
  readonly #apps: App[] = [];
  #isStarted = false;

  private constructor(parts: Parts) {
    this.#parts = parts;
  }

  /**
   * Downloads missing models and opens the state. Does not load the models; `start` does. `tools`: tools of an embedding
   * program.
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
      const webModels = await openWebModels(config.troupe.webModels);
      const { builder, ...options } = await frontOptions(config, log, progress);
      const apiKeys = await openApiKeys(config.server, log, stopped.signal);
      const state = await openState(config, log);
      const front = new InferenceService({ ...options, readFile: (id) => storedFile(state.files, id) });
      const agents = await openAgents(config, state, front, tools, log).catch(async (error) => {
        await state.stop(placeStopMs);
        throw error;
      });
      return new Service({
        config,
        log,
        observers,
        builder,
        library: config.troupe.maxModelDownloads > 0 ? new DownloadedModels({ config, builder, front, log }) : null,
        webModels,
        front,
        state,
        adapters: sharedAdapters(config, state, front, log),
        agents,
        apiKeys,
        tuner: createTuner(config, log),
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

  /** MCP sessions that all replicas share; null if the sessions of this server are not shared. */
  get mcpSessions(): SharedSessions | null {
    const { mcpSessions: store, replicas } = this.#parts.state;
    return store === null || replicas === null ? null : { store, replicas };
  }

  get log(): Logger {
    return this.#parts.log;
  }

  get apiKeys(): Parts["apiKeys"] {
    return this.#parts.apiKeys;
  }

  /** Creates an HTTP app over the models. Settings that are not given are taken from the configuration. */
  createApp(given: Partial<HttpConfig> = {}, extraRoutes: NonNullable<AppOptions["extraRoutes"]> = []): App {
    const { config, log, observers, builder, library, webModels, front, state, agents, apiKeys } = this.#parts;
    const app = createApp({
      apiKeys,
      inference: front,
      models: front,
      library,
      webModels,
      tuner: this.#parts.tuner,
      imageGeneration: front.imageGeneration,
      lora: this.#parts.adapters ?? front.lora,
      storedResponses: state.responses,
      replicas: state.replicas,
      agents: agents.loop,
      files: state.files,
      sessions: state.sessions,
      skills: state.skills,
      speech: front.speech,
      log,
      observers,
      system: systemInspector(checkOptions(config, null, builder.engines)),
      settings: settingsInForce(config),
      isStarting: () => !this.#isStarted,
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
      await this.#parts.library?.restore();
      await this.#parts.adapters?.start();
      this.#isStarted = true;
    } catch (error) {
      await this.#stopPlaces();
      throw error;
    }
  }

  /**
   * Shuts the service down. Stops accepting connections after shutdown_delay_secs, waits for running requests until the
   * deadline, and then ends all threads and processes.
   */
  async stop(listeners: readonly EdgeServer[], others: readonly Drainable[] = []): Promise<void> {
    // A listener with port 0 is mounted in the server of an embedding program. If there is no other listener, there are no
    // connections to close, so new requests are refused at once.
    if (listeners.every(({ port }) => port === 0)) for (const app of this.#apps) app.drain();
    if (listeners.length > 0) await this.#retire(listeners, others);
    for (const other of others) other.drain();
    // Open connections may still send one more request each, because their clients and proxies do not know yet that they will
    // be closed.
    await this.#closeListeners(listeners);
    for (const app of this.#apps) app.drain();
    for (const other of others) await other.close();
    for (const app of this.#apps) app.endBackground();
    // Ends running requests with an error. Their clients have lastWordsMs to read it.
    await this.#parts.front.stop(placeStopMs);
    await closeWithin(listeners, lastWordsMs);
    for (const listener of listeners) listener.forceClose();
    for (const app of this.#apps) await app.settled();
    await this.#stopPlaces();
  }

  /**
   * Continues to serve requests for shutdown_delay_secs, so that clients and load balancers have time to switch to other
   * servers.
   */
  async #retire(listeners: readonly EdgeServer[], others: readonly Drainable[]): Promise<void> {
    for (const app of this.#apps) app.retire();
    const left = Promise.all(listeners.map((listener) => listener.retire()));
    const { config, log } = this.#parts;
    // End the streams of clients that only listen, because the streams would delay the shutdown until its limit. The clients
    // reconnect to the next server on the port.
    if (config.troupe.reusePort) for (const other of others) other.drain();
    const delaySecs = config.troupe.shutdownDelaySecs;
    if (delaySecs === 0) return;
    log.info({ delaySecs }, "requests are still served (shutdown_delay_secs); /ready says 503");
    await resolvesWithin(delaySecs * 1000, left);
  }

  async #stopPlaces(): Promise<void> {
    const { front, state, adapters, agents, library, observers, stopped } = this.#parts;
    stopped.abort();
    adapters?.stop();
    await library?.stop();
    await front.stop(placeStopMs);
    await agents.stop(placeStopMs);
    await state.stop(placeStopMs);
    await Promise.allSettled(observers.map((observer) => observer.close()));
  }

  /**
   * Stops accepting connections and waits for running requests and background responses until the deadline. Requests that still
   * run then end when the worker threads and processes stop.
   */
  async #closeListeners(listeners: readonly EdgeServer[]): Promise<void> {
    const { config, log } = this.#parts;
    const deadlineMs = config.troupe.shutdownDeadlineSecs * 1000;
    for (const listener of listeners) listener.close();
    // Background responses may be created until the last request has ended.
    const ended = Promise.all(listeners.map(({ closed }) => closed)).then(() =>
      Promise.all(this.#apps.map((app) => app.backgroundEnded())),
    );
    if (await resolvesWithin(deadlineMs, ended)) return;
    log.warn({ deadlineMs }, "shutdown deadline passed; running requests are ended");
  }
}

function closeWithin(listeners: readonly EdgeServer[], limitMs: number): Promise<boolean> {
  return resolvesWithin(limitMs, Promise.all(listeners.map((listener) => listener.closed)));
}

/** Reads the folders of `web_models`. Throws config_invalid if two of them have the same name. */
async function openWebModels(given: string | readonly string[] | null): Promise<readonly MlcModel[]> {
  const folders = [given ?? []].flat().map((folder) => resolve(folder));
  const double = folders.find((folder, i) => folders.findIndex((one) => basename(one) === basename(folder)) < i);
  if (double !== undefined) {
    const problem = `web_models names two folders called ${JSON.stringify(basename(double))}: rename one of them`;
    throw new ServerError("config_invalid", problem, { param: "web_models" });
  }
  return await Promise.all(folders.map(readMlcFolder));
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
    downloadsModels: troupe.maxModelDownloads > 0,
    host: server.host,
    allowedHosts: [troupe.allowedHosts ?? []].flat(),
    corsOrigins: troupe.corsOrigins === null ? null : [troupe.corsOrigins].flat(),
    unknownFields: troupe.unknownFields,
    allowCompletionsStream: troupe.allowCompletionsStream,
    maxBackgroundResponses: troupe.maxBackgroundResponses,
    restartsBackground: troupe.restartBackground,
    readyMaxQueue: troupe.readyMaxQueue ?? troupe.maxQueue,
    allowLoraUpdates: server.allowRuntimeLoraUpdating,
    servesMcp: server.mcpPort !== null,
    servesLists: !troupe.disableLists,
  };
}

/**
 * Returns the adapters that are kept the same on all replicas; null if clients may not load adapters, or if there are no other
 * replicas.
 */
function sharedAdapters(
  { server }: Config,
  state: State,
  { lora }: InferenceService,
  log: Logger,
): SharedAdapters | null {
  const { adapters: desired, replicas } = state;
  if (desired === null || replicas === null || !server.allowRuntimeLoraUpdating) return null;
  return new SharedAdapters({ own: lora, desired, replicas, log });
}

/** Returns the content of a stored file. Throws not_found. */
async function storedFile(files: Files, id: string): Promise<Uint8Array> {
  const found = await files.content(id);
  if (found?.kind === "content") return await readFile(found.path);
  throw new ServerError("not_found", `no file with id ${JSON.stringify(id)} has content; upload it again`);
}
