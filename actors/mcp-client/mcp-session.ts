// MCP session: one connection to an MCP server, from initialisation to its end. A reconnect creates a new session; see connection.ts.
import {
  Client,
  type ElicitRequestFormParams,
  type ElicitResult,
  ProtocolError,
  ProtocolErrorCode,
  SdkHttpError,
  type ServerCapabilities,
  type Transport,
} from "@modelcontextprotocol/client";
import type { Clock } from "../../runtime/clock.ts";
import { deferred } from "../../runtime/deferred.ts";
import { ServerError } from "../../runtime/errors.ts";
import { isOldServer, type TransportOptions, transportsOf } from "./transports/open-transport.ts";

/** Maximum time in ms until a server is initialised. Programs such as npx may first have to download the server. */
export const connectTimeoutMs = 60_000;
/** Interval in ms between health checks of an idle server. */
const CHECK_MS = 30_000;
/** Milliseconds within which a server must respond to a health check. */
const ANSWER_MS = 5000;
/** Longest timeout that the SDK accepts, in ms. The callers of a session have their own limits. */
export const unlimited = { timeout: 2 ** 31 - 1 };

export interface McpSessionEvents {
  readonly onToolsChanged: () => void;
  /** Asks the user for data that the server requests. */
  readonly elicit: (params: ElicitRequestFormParams, signal: AbortSignal) => Promise<ElicitResult>;
  /** Returns whether calls are running. A server that is processing a call may not respond to health checks. */
  readonly isBusy: () => boolean;
}

export interface McpSessionOptions extends McpSessionEvents, Omit<TransportOptions, "onEnd"> {
  /** Version of this program, sent to the server. */
  readonly version: string;
  readonly clock: Clock;
  /** Called with log messages of the server. */
  readonly onLog: (text: string) => void;
}

export class McpSession {
  readonly #options: McpSessionOptions;
  #client: Client | null = null;
  #transport: Transport | null = null;
  readonly #end = deferred<string>();
  #endReason: string | null = null;
  /** Resolves with the reason when the connection has ended. */
  readonly ended = this.#end.promise;
  #stopChecks = (): void => {};
  #isProbing = false;

  constructor(options: McpSessionOptions) {
    this.#options = options;
  }

  /** Connects to and initialises the server. Rejects with the reason of a failure. `close` must be called in both cases. */
  async open(): Promise<void> {
    const { clock } = this.#options;
    const limit = new AbortController();
    const stopTimer = clock.setTimeout(() => limit.abort(), connectTimeoutMs);
    try {
      await this.#openAny(limit.signal);
    } catch (error) {
      if (limit.signal.aborted) {
        throw new ServerError("timeout", `it did not answer "initialize" within ${connectTimeoutMs / 1000} s`);
      }
      throw this.#explained(error);
    } finally {
      stopTimer();
    }
    this.#checkLater();
  }

  async close(): Promise<void> {
    this.fail("it was closed");
    this.#stopChecks();
    const transport = this.#transport;
    if (transport !== null && "terminateSession" in transport) await endHttpSession(transport);
    await this.#client?.close().catch(() => {});
    await transport?.close().catch(() => {});
  }

  /** Ends the connection with a reason. It cannot be used any more. */
  fail(reason: string): void {
    this.#endReason ??= reason;
    this.#end.resolve(this.#endReason);
  }

  /** Reason why the connection has ended; null = it is still open. */
  get endReason(): string | null {
    return this.#endReason;
  }

  get capabilities(): ServerCapabilities {
    return this.#opened().getServerCapabilities() ?? {};
  }

  /** Sends a request. Rejects with the server's error, or with the reason why the connection has ended. */
  async ask<T>(request: (client: Client) => Promise<T>): Promise<T> {
    try {
      return await request(this.#opened());
    } catch (error) {
      if (hasLostSession(error)) this.fail(messageOf(error));
      throw this.#explained(error);
    }
  }

  async #openAny(signal: AbortSignal): Promise<void> {
    const kinds = transportsOf({ ...this.#options, onEnd: (reason) => this.fail(reason) });
    for (const [i, open] of kinds.entries()) {
      try {
        await this.#openOne(open(), signal);
        return;
      } catch (error) {
        if (signal.aborted || i + 1 === kinds.length || !isOldServer(error)) throw error;
      }
    }
  }

  async #openOne(transport: Transport, signal: AbortSignal): Promise<void> {
    const client = this.#makeClient();
    this.#transport = transport;
    this.#client = client;
    // Closing the transport also ends a start that hangs.
    const close = (): void => void transport.close().catch(() => {});
    signal.addEventListener("abort", close, { once: true });
    try {
      const aborted = new Promise<never>((_, reject) =>
        signal.addEventListener("abort", () => reject(new Error("timeout")), { once: true }),
      );
      await Promise.race([client.connect(transport, { ...unlimited, signal }), aborted]);
    } finally {
      signal.removeEventListener("abort", close);
    }
    // Over HTTP, the end of a server does not close the connection; only a stream breaks. So each error triggers a probe.
    if ("url" in this.#options.source) client.onerror = () => void this.#probe();
    client.onclose = () => this.fail("it closed the connection");
  }

  #makeClient(): Client {
    const { version, onToolsChanged, onLog, elicit } = this.#options;
    const client = new Client(
      { name: "troupe", version },
      { capabilities: { elicitation: { form: { applyDefaults: true } } }, jsonSchemaValidator: anyOutput },
    );
    client.setNotificationHandler("notifications/tools/list_changed", onToolsChanged);
    client.setNotificationHandler("notifications/message", ({ params }) => onLog(textOf(params.data)));
    client.setRequestHandler("elicitation/create", async ({ params }, { mcpReq }) => {
      if (params.mode === "url") return { action: "decline" };
      return await elicit(params, mcpReq.signal);
    });
    client.fallbackRequestHandler = async ({ method }) => {
      throw new ProtocolError(ProtocolErrorCode.MethodNotFound, `troupe does not support "${method}" for MCP servers`);
    };
    return client;
  }

  /** Health check: ends the connection if the server does not respond. A server that is processing calls is not checked. */
  async check(): Promise<void> {
    this.#stopChecks();
    try {
      if (!this.#options.isBusy()) await this.#opened().ping({ timeout: ANSWER_MS });
    } catch (error) {
      // A server that does not support "ping" responds with an error, so it is alive.
      if (!ProtocolError.isInstance(error)) this.fail(`it did not answer a "ping": ${messageOf(error)}`);
    }
    this.#checkLater();
  }

  /** Ends the connection if the server cannot be reached or no longer knows the session. */
  async #probe(): Promise<void> {
    if (this.#isProbing || this.#endReason !== null) return;
    this.#isProbing = true;
    await this.ask((client) => client.ping({ timeout: ANSWER_MS })).catch(() => {});
    this.#isProbing = false;
  }

  #checkLater(): void {
    this.#stopChecks();
    if (this.#endReason === null) this.#stopChecks = this.#options.clock.setTimeout(() => void this.check(), CHECK_MS);
  }

  #opened(): Client {
    if (this.#client === null) throw new Error("the session is not open");
    return this.#client;
  }

  /** Returns the reason why the connection has ended, if known, instead of a less specific error. */
  #explained(error: unknown): Error {
    const reason = this.#endReason;
    if (reason !== null && !(error instanceof ProtocolError)) return new ServerError("peer_gone", reason);
    return error instanceof Error ? error : new Error(String(error));
  }
}

/**
 * Validator that accepts everything. Tool outputs are not validated: the schemas come from the servers, and the model can read
 * any output.
 */
const anyOutput = {
  getValidator:
    <T>() =>
    (data: unknown) => ({ valid: true as const, data: data as T & {}, errorMessage: undefined }),
};

/** Returns whether the server cannot be reached or no longer knows the HTTP session. */
function hasLostSession(error: unknown): boolean {
  if (error instanceof SdkHttpError) return error.status === 404 || error.status === 410;
  return error instanceof TypeError;
}

async function endHttpSession(transport: { readonly terminateSession: unknown }): Promise<void> {
  const { terminateSession } = transport;
  if (typeof terminateSession !== "function") return;
  await Promise.race([
    Promise.resolve(terminateSession.call(transport)).catch(() => {}),
    new Promise((resolve) => setTimeout(resolve, 1000).unref()),
  ]);
}

/** Returns the message of an error together with its causes, because "fetch failed" alone is not informative. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause, message } = error;
  return cause instanceof Error && cause.message !== "" ? `${message}: ${cause.message}` : message;
}

function textOf(data: unknown): string {
  return typeof data === "string" ? data : JSON.stringify(data);
}
