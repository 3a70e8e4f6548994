// MCP server: listens on a separate port and checks each request. Passes it to the request's session, or handles it without a
// session. Its tools call routes of the app. Created by cli/.
import { ServerError } from "../../runtime/errors.ts";
import { Exchange, type ExchangeOptions } from "../exchange.ts";
import { readJsonValue } from "../json.ts";
import type { Route } from "../routes.ts";
import { type ApiKeys, asksForMetadata } from "../server/access/api-keys.ts";
import { KnownHosts } from "../server/access/hosts.ts";
import { clientOf } from "../server/client.ts";
import type { AdmitRequest, HttpReply, HttpRequest } from "../server/edge.ts";
import { sendResponse, webRequest } from "./bridge.ts";
import { rpcErrors } from "./errors.ts";
import { checkMessages, isCancellation, isInitialize } from "./messages.ts";
import { mcpOperation } from "./operation.ts";
import type { ServerFactory } from "./protocol.ts";
import { Sessionless } from "./sessionless.ts";
import { type Session, Sessions, type SharedSessions } from "./sessions.ts";

export interface McpConfig {
  /** Address that the server listens on. */
  readonly host: string;
  /**
   * Additional host names under which clients reach the server, for example the name of a proxy. Web pages on these hosts may
   * use the server.
   */
  readonly allowedHosts: readonly string[];
  readonly maxSessions: number;
  readonly sessionIdleMs: number;
  readonly keepAliveMs: number;
  readonly readerStallMs: number;
}

export interface McpOptions {
  /** API keys. Each request needs one of these keys; null (default): no request needs a key. */
  readonly apiKeys?: ApiKeys | null;
  readonly config: McpConfig;
  readonly createServer: ServerFactory;
  readonly exchange: ExchangeOptions;
  /** Sessions shared by all replicas; null (default): the sessions belong to this server only. */
  readonly shared?: SharedSessions | null;
}

/**
 * Limits of a message. Its bytes are limited because messages are parsed on the main thread; the nesting of arguments is limited where
 * they are read, so that the client gets a JSON-RPC error.
 */
const bodyLimits = { limitBytes: 4 * 2 ** 20, limitDepth: Number.POSITIVE_INFINITY };
const PATH = "/mcp";
const allow = { allow: "GET, POST, DELETE, OPTIONS" };
const preflightHeaders = {
  ...allow,
  "access-control-allow-methods": "GET, POST, DELETE",
  // All headers are allowed, because each revision of the protocol adds some. The origin has already been checked.
  "access-control-allow-headers": "*, Authorization",
};

export class Mcp {
  readonly #config: McpConfig;
  readonly #exchangeOptions: ExchangeOptions;
  readonly #hosts: KnownHosts;
  readonly #apiKeys: ApiKeys | null;
  /** Maps the Request passed to the MCP library to its exchange. */
  readonly #exchanges = new WeakMap<Request, Exchange>();
  readonly #sessions: Sessions;
  readonly #sessionless: Sessionless;
  readonly #route: Route;
  #isDraining = false;

  constructor({ config, createServer, exchange, apiKeys = null, shared = null }: McpOptions) {
    this.#apiKeys = apiKeys;
    this.#config = config;
    this.#exchangeOptions = exchange;
    this.#hosts = new KnownHosts(config.host, config.allowedHosts, exchange.corsOrigins);
    const exchangeOf = (request: Request | undefined) => request && this.#exchanges.get(request);
    this.#sessions = new Sessions({ ...config, createServer, exchangeOf, shared });
    this.#sessionless = new Sessionless(config.keepAliveMs, createServer, exchangeOf);
    this.#route = {
      method: "POST",
      path: PATH,
      kind: "inference",
      handler: (exchange) => this.#serve(exchange),
      errors: rpcErrors,
      operation: mcpOperation,
    };
  }

  /** Handles a request of the HTTP front end (EdgeHandler). */
  readonly handle = (request: HttpRequest, reply: HttpReply, refusal: ServerError | null): void => {
    const exchange = new Exchange(request, reply, this.#exchangeOptions);
    if (request.path === PATH) exchange.matched(this.#route, {});
    exchange.begin();
    this.#answer(exchange, refusal)
      .catch((thrown: unknown) => exchange.fail(thrown, thrown instanceof MethodNotAllowed ? allow : {}))
      .finally(() => exchange.finish());
  };

  /**
   * Checks the host, the origin and the API key of a request before its body is read. Returns the error to send; null if the
   * request is accepted.
   */
  readonly admit: AdmitRequest = (request) => {
    const needsKey = request.method !== "OPTIONS" && !asksForMetadata(request);
    return this.#hosts.refusal(request) ?? (needsKey ? this.#apiKeys?.refusal(request) : null) ?? null;
  };

  /**
   * Closes the streams that clients opened only to listen for notifications. Later streams of this kind are closed immediately.
   */
  drain(): void {
    this.#isDraining = true;
    this.#sessions.stopListening();
  }

  async close(): Promise<void> {
    await this.#sessionless.close();
    await this.#sessions.close();
  }

  async #answer(exchange: Exchange, refusal: ServerError | null): Promise<void> {
    const { method, path } = exchange.request;
    const refused = this.admit(exchange.request) ?? refusal;
    if (refused !== null) throw refused;
    if (path !== PATH) {
      throw new ServerError("not_found", `unknown path ${path.slice(0, 200)}; this server has ${PATH}`);
    }
    if (method === "OPTIONS") exchange.send(204, preflightHeaders, "");
    else await this.#serve(exchange);
  }

  async #serve(exchange: Exchange): Promise<void> {
    const { method, headers } = exchange.request;
    const id = headers.get("mcp-session-id");
    const message = method === "POST" ? readJsonValue(exchange.request, bodyLimits) : undefined;
    if (method === "POST") checkMessages(message);
    else if (method !== "GET" && method !== "DELETE") throw new MethodNotAllowed(method);
    else if (id === undefined) throw new MethodNotAllowed(`${method} without a session (mcp-session-id)`);

    const request = webRequest(exchange.request);
    this.#exchanges.set(request, exchange);
    if (id !== undefined) {
      const session = await this.#sessions.find(id);
      if (isCancellation(message)) void this.#sessions.passOn(id, message);
      const forget = method === "DELETE" ? () => this.#sessions.forget(id) : undefined;
      await this.#serveIn(session, exchange, request, message, forget);
    } else if (isInitialize(message)) {
      const session = await this.#sessions.open(clientOf(exchange.request));
      // The session is shared before the client learns its id, because the client may then use the id on any replica.
      await this.#serveIn(session, exchange, request, message, () => this.#sessions.share(session, message));
    } else await this.#send(exchange, await this.#sessionless.fetch(request, message));
  }

  /** Handles a request in a session. `before`: called before a successful response is sent. */
  async #serveIn(
    session: Session,
    exchange: Exchange,
    request: Request,
    message: unknown,
    before: () => Promise<void> = async () => {},
  ): Promise<void> {
    session.hold();
    try {
      const response = await session.fetch(request, message);
      if (this.#isDraining) session.stopListening();
      if (response.ok) await before();
      await this.#send(exchange, response);
    } finally {
      session.release();
    }
  }

  #send(exchange: Exchange, response: Response): Promise<void> {
    return sendResponse(exchange, response, this.#config.readerStallMs);
  }
}

class MethodNotAllowed extends ServerError {
  constructor(got: string) {
    super("method_not_allowed", `${PATH} takes ${allow.allow}, not ${got.slice(0, 60)}`);
  }
}
