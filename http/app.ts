// App: routes each request to its handler. It handles CORS preflights, unknown paths, wrong methods and draining itself, and
// turns every error into an error response. Created by the composition root; an HTTP front end (or a test) calls `handle`.
import type { Agents } from "../actors/api/agent/agents.ts";
import type { Files } from "../actors/api/agent/files.ts";
import type { Sessions } from "../actors/api/agent/sessions.ts";
import type { Skills } from "../actors/api/agent/skills.ts";
import type { ImageGeneration } from "../actors/api/images/image-generation.ts";
import type { Inference } from "../actors/api/inference.ts";
import type { LoraAdapters } from "../actors/api/lora-adapters.ts";
import type { ModelLibrary, ModelManagement } from "../actors/api/model-management.ts";
import type { Speech } from "../actors/api/speech/speech.ts";
import type { Replicas } from "../actors/api/state/replicas.ts";
import { type ClaimedResponse, maxStoredBytes, type StoredResponses } from "../actors/api/stored-responses.ts";
import type { Tuner } from "../actors/api/tuning.ts";
import { ResponseStore } from "../actors/state/response-store.ts";
import type { MlcModel } from "../engines/files/mlc-folder.ts";
import { ServerError } from "../runtime/errors.ts";
import { bareInspector, type SystemInspector } from "../runtime/host/system.ts";
import { MemoryTables } from "../runtime/store/memory-tables.ts";
import { TableStore } from "../runtime/store/table-store.ts";
import { answerReplicas } from "./agent/replicas.ts";
import type { Context, HttpConfig, RouteHandler } from "./context.ts";
import type { ErrorFormat } from "./errors.ts";
import type { ExchangeObserver } from "./exchange.ts";
import { Exchange } from "./exchange.ts";
import { noteModel } from "./json.ts";
import { messagesErrors } from "./messages/errors.ts";
import { untuned } from "./models/tune-route.ts";
import { unmanaged } from "./models/unmanaged.ts";
import { AccessLog } from "./observe/access-log.ts";
import { ActiveRequests } from "./observe/active-requests.ts";
import { InstrumentedInference, type ObservedRequest, type OnEvents } from "./observe/instrumented-inference.ts";
import type { Log } from "./observe/log.ts";
import { HttpMetrics } from "./observe/metrics/recorder.ts";
import { isOllamaPath, ollamaErrors } from "./ollama/errors.ts";
import { respond } from "./responses/create-route.ts";
import { Responses } from "./responses/responses.ts";
import { Restarter } from "./responses/restarter.ts";
import { type MatchedPath, RouteTable } from "./route-table.ts";
import { isServed, type Route, routes } from "./routes.ts";
import { type ApiKeys, asksForMetadata } from "./server/access/api-keys.ts";
import { KnownHosts } from "./server/access/hosts.ts";
import type { AdmitRequest, HttpReply, HttpRequest, SpoolFolder } from "./server/edge.ts";
import { AnswerMemory } from "./shared/answer/answer-memory.ts";
import { hasVersionHeader } from "./shared/version-header.ts";
import type { SettingInForce } from "./system/settings.ts";
import { unsupportedEndpoint } from "./unsupported.ts";

export interface AppOptions {
  readonly inference: Inference;
  /** Loads and unloads models; by default models cannot be loaded or unloaded over HTTP. */
  readonly models?: ModelManagement;
  /** Finds the best settings of a model by benchmarks; by default this is not possible over HTTP. */
  readonly tuner?: Tuner;
  /** Downloads models; null (default): clients may not download models. */
  readonly library?: ModelLibrary | null;
  /** Models that browsers may copy and run on the visitor's GPU; default: none. */
  readonly webModels?: readonly MlcModel[];
  /** Generates images from text; null (default): the server generates no images. */
  readonly imageGeneration?: ImageGeneration | null;
  /** LoRA adapters of the models; null (default): no model accepts adapters. */
  readonly lora?: LoraAdapters | null;
  /** Agent loop; null (default): the server runs no tools. */
  readonly agents?: Agents | null;
  /** Storage of files, sessions and skills; null (default): the server stores none. */
  readonly files?: Files | null;
  readonly sessions?: Sessions | null;
  readonly skills?: Skills | null;
  /** Synthesises speech and transcribes audio; null (default): the server has no speech models. */
  readonly speech?: Speech | null;
  /** API keys. A request needs one of these keys, unless its route is open; null (default): no request needs a key. */
  readonly apiKeys?: ApiKeys | null;
  readonly log: Log;
  /** Storage of responses; default: in memory. */
  readonly storedResponses?: StoredResponses;
  /** Other servers that share this server's state; null (default): none. */
  readonly replicas?: Replicas | null;
  readonly config?: Partial<HttpConfig>;
  /** Maximum memory in bytes for the logprobs and embeddings of all responses in progress; default: MAX_ANSWER_BYTES. */
  readonly maxAnswerBytes?: number;
  readonly system?: SystemInspector;
  /** Current values of the settings, for GET /v1/system/config; default: none. */
  readonly settings?: readonly SettingInForce[];
  /** Routes in addition to those of the server. */
  readonly extraRoutes?: readonly Route[];
  /** Returns whether the models and adapters in the settings are still being loaded; default: always false. */
  readonly isStarting?: () => boolean;
  /** Observers of inference requests and results, in addition to the access log and the metrics. */
  readonly observers?: readonly ExchangeObserver[];
}

export interface App {
  /** Handles a request of the HTTP front end (EdgeHandler). `onEvents` receives the events of the request's generation. */
  handle(request: HttpRequest, reply: HttpReply, refusal: ServerError | null, onEvents?: OnEvents): void;
  /**
   * Checks the host, the origin and the API key of a request before its body is read. Returns the error to send; null if the
   * request is accepted.
   */
  readonly admit: AdmitRequest;
  /** Returns the folder for the body of an upload, which is written to a file; null for all other bodies. */
  readonly spoolFolder: SpoolFolder;
  /** Makes /ready respond with 503. All requests are still served. */
  retire(): void;
  /** Rejects new inference requests with the error `draining`. Running requests continue, and /health still responds. */
  drain(): void;
  /** Resolves when no background response is running. */
  backgroundEnded(): Promise<void>;
  /** Interrupts all background responses that are running. */
  endBackground(): void;
  /** Resolves when all responses that have ended are stored. */
  settled(): Promise<void>;
}

const defaults: HttpConfig = {
  keepAliveMs: 10_000,
  readerStallMs: 30_000,
  accessLog: true,
  accessLogHealth: false,
  disableRequestIdHeader: false,
  disableMetrics: false,
  maxBackgroundResponses: 64,
  restartsBackground: false,
  readyMaxQueue: Number.POSITIVE_INFINITY,
  host: "localhost",
  allowedHosts: [],
  corsOrigins: null,
  unknownFields: "ignore",
  allowLoraUpdates: false,
  allowCompletionsStream: false,
  servesMcp: false,
  needsApiKey: false,
  servesDocs: true,
  servesMetrics: true,
  servesLists: true,
  servesUi: true,
  sharesModelFiles: false,
  downloadsModels: false,
  basePath: "",
};

const memoryLimits = {
  maxEntries: 1000,
  maxBytes: 256 * 2 ** 20,
  maxEntryBytes: maxStoredBytes,
  maxAgeMs: 30 * 24 * 3600 * 1000,
};

const preflightHeaders = {
  "access-control-allow-methods": "GET, POST, PUT, DELETE",
  // The headers of the API contract, and any other: clients add headers of their own, which the server ignores. The wildcard does not
  // include Authorization.
  "access-control-allow-headers": "Content-Type, Authorization, x-api-key, alt-version, alt-beta, x-request-id, *",
};

export function createApp({
  inference,
  log,
  storedResponses,
  apiKeys = null,
  config: given,
  ...rest
}: AppOptions): App {
  const config = { ...defaults, ...given, needsApiKey: apiKeys !== null };
  const {
    observers = [],
    extraRoutes = [],
    system = bareInspector(),
    models = unmanaged(inference),
    tuner = untuned,
    library = null,
    webModels = [],
    imageGeneration = null,
    lora = null,
    agents = null,
    files = null,
    sessions = null,
    skills = null,
    replicas = null,
    speech = null,
    maxAnswerBytes,
    settings = [],
    isStarting = () => false,
  } = rest;
  const store = storedResponses ?? new ResponseStore(new TableStore(new MemoryTables(), memoryLimits));
  const { maxBackgroundResponses: maxBackground, restartsBackground } = config;
  const responses = new Responses({ store, replicas, log, maxBackground, restartsBackground });
  if (replicas !== null && agents !== null) answerReplicas(replicas, agents);
  const metrics = config.disableMetrics ? null : new HttpMetrics(inference);
  const answerMemory = new AnswerMemory(maxAnswerBytes);
  const tokenTexts = (model: string) => inference.tokenTexts(model);
  const active = new ActiveRequests();
  const shared = {
    models,
    tuner,
    library,
    webModels,
    imageGeneration,
    lora,
    agents,
    files,
    sessions,
    skills,
    speech,
    config,
    log,
    answerMemory,
    tokenTexts,
    responses,
    replicas,
    metrics,
    system,
    active,
    settings,
  };
  let isRetiring = false;
  const context: Context = { inference, isRetiring: () => isRetiring, isStarting, ...shared };
  const table = new RouteTable([...routes.filter((route) => isServed(route, config)), ...extraRoutes]);
  const accessLog = config.accessLog ? [new AccessLog(log)] : [];
  const { host, allowedHosts, corsOrigins } = config;
  const hosts = corsOrigins === null ? null : new KnownHosts(host, allowedHosts, corsOrigins);
  const common = { log, disableRequestIdHeader: config.disableRequestIdHeader, corsOrigins };
  const quietOptions = { ...common, observers: config.accessLogHealth ? accessLog : [] };
  const loudOptions = { ...common, observers: metrics === null ? accessLog : [...accessLog, metrics] };
  const inferenceOptions = { ...common, observers: [...loudOptions.observers, ...observers] };
  let isDraining = false;

  const isOpen = (request: Pick<HttpRequest, "method" | "path">): boolean => {
    const { method, path } = request;
    const methods = table.match(path, method)?.methods;
    if (methods === undefined && asksForMetadata(request)) return true;
    return method === "OPTIONS" || methods?.get(method)?.isOpen === true;
  };
  const admit: App["admit"] = (request) =>
    hosts?.refusal(request) ?? (apiKeys === null || isOpen(request) ? null : apiKeys.refusal(request));

  const handle: App["handle"] = (request, reply, refusal, onEvents) => {
    const isHandshake =
      reply.upgrade !== undefined && table.match(request.path, "POST")?.methods.get("POST")?.takesMessages;
    const method = isHandshake ? "POST" : request.method;
    const matched = table.match(request.path, method);
    const methods = matched?.methods;
    const route = methods?.get(method);
    const isInferred = !isHandshake && (route?.kind === "inference" || route?.isInferred === true);
    const options = isQuiet(request, matched) ? quietOptions : isInferred ? inferenceOptions : loudOptions;
    const exchange = new Exchange(request, reply, options);
    if (route !== undefined) exchange.matched(route, matched?.parameters ?? {});
    exchange.begin();
    const refused = refusal ?? admit(request);
    if (refused !== null) exchange.fail(refused, {}, route === undefined ? formatOf(exchange, methods) : undefined);
    else if (request.method === "OPTIONS") exchange.send(204, { ...preflightHeaders, ...allow(methods) }, "");
    else if (route === undefined) refuseRoute(exchange, methods, table);
    else if (isDraining && route.kind === "inference") refuseDraining(exchange);
    else if (isHandshake) exchange.upgrade();
    else {
      runHandler(route.handler, exchange, context, onEvents);
      return;
    }
    exchange.finish();
  };
  // While a model is being loaded or the server cannot serve requests, a response taken over from another server would fail.
  const isReady = (): boolean =>
    !isStarting() &&
    inference.faults().length === 0 &&
    inference.models().every(({ status }) => status !== "reloading");
  const restarter = restartsBackground ? new Restarter({ responses, log, isReady, create: createClaimed }) : null;
  async function createClaimed(request: HttpRequest, reply: HttpReply, claimed: ClaimedResponse): Promise<void> {
    if (isDraining) throw draining();
    const exchange = new Exchange(request, reply, inferenceOptions);
    const route = table.match(request.path, request.method)?.methods.get(request.method);
    if (route !== undefined) exchange.matched(route, {});
    exchange.begin();
    await new Promise<void>((resolve, reject) => {
      const handler: RouteHandler = async (...about) => {
        const created = respond(...about, claimed);
        created.then(resolve, reject);
        await created;
      };
      runHandler(handler, exchange, context);
    });
  }
  const spoolFolder: SpoolFolder = ({ method, path }) =>
    files !== null && table.match(path, method)?.methods.get(method)?.spoolsBody ? files.stagingFolder : null;
  return {
    handle,
    admit,
    spoolFolder,
    retire() {
      isRetiring = true;
      // This server is about to stop. A response that it takes over now would soon be released for another server.
      restarter?.stop();
    },
    drain() {
      isRetiring = true;
      isDraining = true;
      restarter?.stop();
    },
    backgroundEnded: () => responses.backgroundEnded(),
    endBackground() {
      restarter?.stop();
      responses.interruptBackground();
    },
    settled: () => responses.settled(),
  };
}

/**
 * Returns true if a request is excluded from the metrics and, by default, from the access log. These are CORS preflights,
 * requests for operations routes (health, metrics, documents), and wrong methods on paths that have only operations routes.
 */
function isQuiet({ method }: HttpRequest, matched: MatchedPath | undefined): boolean {
  if (method === "OPTIONS") return true;
  if (matched === undefined) return false;
  const route = matched.methods.get(method);
  if (route !== undefined) return route.kind === "operations";
  return [...matched.methods.values()].every(({ kind }) => kind === "operations");
}

function refuseDraining(exchange: Exchange): void {
  noteModel(exchange.request);
  exchange.fail(draining());
}

function draining(): ServerError {
  return new ServerError("draining", "the server is shutting down; send the request to another one");
}

/** Runs a handler, which may be asynchronous, and then finishes the exchange. */
function runHandler(handler: RouteHandler, exchange: Exchange, context: Context, onEvents?: OnEvents): void {
  const failed = (thrown: unknown): void => {
    exchange.fail(thrown);
    exchange.finish();
  };
  try {
    const { id, receivedAt, request } = exchange;
    const source = { id, receivedAt, path: request.path, client: request.address };
    const list: ObservedRequest["list"] = (asked) => context.active.request(source, asked);
    const observing = { holder: exchange, list, onEvents };
    const inference = new InstrumentedInference(context.inference, context.agents, observing);
    const observed = { ...context, inference, agents: inference.agents };
    const pending = handler(exchange, observed);
    if (pending === undefined) exchange.finish();
    else pending.then(() => exchange.finish(), failed);
  } catch (thrown) {
    failed(thrown);
  }
}

function refuseRoute(exchange: Exchange, methods: ReadonlyMap<string, Route> | undefined, table: RouteTable): void {
  const { method, path } = exchange.request;
  const format = formatOf(exchange, methods);
  if (methods === undefined) {
    const unsupported = unsupportedEndpoint(path, format);
    if (unsupported !== null) {
      exchange.fail(unsupported.error, {}, unsupported.format);
      return;
    }
    // Requests for metadata need no API key, so the response does not say what the server has.
    const served = asksForMetadata(exchange.request) ? "" : `; this server has ${table.paths.join(", ")}`;
    const message = `there is nothing at ${path.slice(0, 200)}${served}`;
    exchange.fail(new ServerError("not_found", message), {}, format);
    return;
  }
  const allowed = allow(methods);
  const message = `${path.slice(0, 200)} takes ${allowed.allow}, not ${method.slice(0, 20)}`;
  exchange.fail(new ServerError("method_not_allowed", message), allowed, format);
}

/** Returns the error format of a request without a route; undefined means the common format. */
function formatOf({ request }: Exchange, methods: ReadonlyMap<string, Route> | undefined): ErrorFormat | undefined {
  // Clients of the messages protocol expect its error format on every path.
  if (hasVersionHeader(request)) return messagesErrors;
  if (isOllamaPath(request.path)) return ollamaErrors;
  // Clients of a path expect the error format of the path's protocol.
  return [...(methods?.values() ?? [])].find(({ errors }) => errors !== undefined)?.errors;
}

function allow(methods: ReadonlyMap<string, Route> | undefined): { readonly allow: string } {
  return { allow: methods === undefined ? "OPTIONS" : [...methods.keys(), "OPTIONS"].join(", ") };
}
