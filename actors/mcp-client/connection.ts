// Connection to one MCP server: reconnects with exponential backoff, keeps the list of the server's tools, and runs calls. If a
// server fails, only the calls of that server end.
import type { Clock } from "../../runtime/clock.ts";
import { SaidOnce } from "../../runtime/log/said-once.ts";
import type { McpCall, McpServerSettings } from "../api/agent/mcp.ts";
import type { ServerToolResult } from "../api/agent/server-tools.ts";
import { type McpSession, type McpSessionEvents, messageOf } from "./mcp-session.ts";
import { goneError, redacted, ServerCalls, type ServerCallsOptions } from "./server-calls.ts";
import { toolsOfServer } from "./server-tools.ts";
import type { ListedTool } from "./tool-names.ts";

const MIN_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 30_000;
/** Milliseconds after which a connection counts as stable: the next backoff then starts at its minimum. */
const RESET_AFTER_MS = 60_000;
/** Delay in ms between a notification of changed tools and reading the new list. Further notifications within the delay are merged. */
const LIST_PAUSE_MS = 100;
/** Delay in ms before the list is read again if the tools changed while it was being read. */
const REPEATED_LIST_PAUSE_MS = 2000;

export interface ConnectionOptions extends Omit<ServerCallsOptions, "mcpSession"> {
  /** Creates a session without opening it. */
  readonly createSession: (events: McpSessionEvents) => McpSession;
  /** Called when the tools or `isConnected` have changed. */
  readonly onChange: () => void;
}

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #clock: Clock;
  readonly #calls: ServerCalls;
  #session: McpSession | null = null;
  /** Reason why there is no connection: why the last session ended, kept while the next one is being opened. */
  #downReason = "it is being connected";
  #tools: readonly ListedTool[] = [];
  #isListPlanned = false;
  /** Whether the server has reported changed tools since the last read of the list began. */
  #hasNotice = false;
  readonly #said = new SaidOnce();
  readonly #stopped = new AbortController();
  #life: Promise<void> = Promise.resolve();

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#clock = options.clock;
    this.#calls = new ServerCalls({
      ...options,
      mcpSession: () => {
        if (this.#session === null) throw goneError(options.settings, this.#downReason);
        return this.#session;
      },
    });
  }

  get settings(): McpServerSettings {
    return this.#options.settings;
  }

  get isConnected(): boolean {
    return this.#session !== null;
  }

  /** Tools of the server as last listed, even while the server is not connected. */
  get tools(): readonly ListedTool[] {
    return this.#tools;
  }

  start(): void {
    this.#life = this.#keepConnected();
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    this.#calls.endAll(goneError(this.settings, "this server is stopping"));
    await this.#life;
  }

  async call(call: McpCall): Promise<ServerToolResult> {
    return await this.#calls.call(call);
  }

  cancel(id: string): void {
    this.#calls.cancel(id);
  }

  async #keepConnected(): Promise<void> {
    let failures = 0;
    for (;;) {
      const startedAt = this.#clock.now();
      const session = this.#createSession();
      const reason = await this.#connectOnce(session);
      this.#session = null;
      if (this.#stopped.signal.aborted) return await session.close();
      failures = this.#clock.now() - startedAt >= RESET_AFTER_MS ? 1 : failures + 1;
      const retryInMs = Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** (failures - 1));
      this.#onDown(reason, retryInMs);
      await Promise.all([session.close(), this.#wait(retryInMs)]);
      if (this.#stopped.signal.aborted) return;
    }
  }

  #createSession(): McpSession {
    return this.#options.createSession({
      onToolsChanged: () => this.#listLater(),
      elicit: (params, signal) => this.#calls.elicit(params, signal),
      isBusy: () => this.#calls.size > 0,
    });
  }

  /** Connects to the server and waits until the connection ends. Returns the reason of the end. */
  async #connectOnce(session: McpSession): Promise<string> {
    const stop = (): void => session.fail("this server is stopping");
    this.#stopped.signal.addEventListener("abort", stop, { once: true });
    try {
      const opened = session.open().then(async () => await this.#list(session));
      const tools = await Promise.race([opened, session.ended]);
      if (typeof tools === "string") return tools;
      this.#tools = tools;
      this.#onUp(session);
      return await session.ended;
    } catch (error) {
      return messageOf(error);
    } finally {
      this.#stopped.signal.removeEventListener("abort", stop);
    }
  }

  #onUp(session: McpSession): void {
    const { report, onChange } = this.#options;
    this.#session = session;
    this.#downReason = "";
    const fields = { server: this.settings.name, tools: this.#tools.length };
    report({ type: "log", level: "info", fields, message: "MCP server is connected" });
    onChange();
  }

  #onDown(reason: string, retryInMs: number): void {
    const { report, onChange } = this.#options;
    const { name, secrets } = this.settings;
    const shown = redacted(reason, secrets);
    // A repeated reason is logged at a lower level, because the state of the server has not changed.
    const level = shown === this.#downReason ? "debug" : "warn";
    this.#downReason = shown;
    this.#calls.endAll(goneError(this.settings, shown));
    report({
      type: "log",
      level,
      fields: { server: name, reason: shown, retryInMs },
      message: "MCP server is not connected",
    });
    onChange();
  }

  #listLater(pauseMs = LIST_PAUSE_MS): void {
    this.#hasNotice = true;
    if (this.#isListPlanned) return;
    this.#isListPlanned = true;
    this.#clock.setTimeout(() => void this.#listOnce(), pauseMs);
  }

  /** Reads the list of tools again. Only one read runs at a time, so that an older list never replaces a newer one. */
  async #listOnce(): Promise<void> {
    this.#hasNotice = false;
    await this.#listAgain();
    this.#isListPlanned = false;
    if (this.#hasNotice) this.#listLater(REPEATED_LIST_PAUSE_MS);
  }

  async #listAgain(): Promise<void> {
    const session = this.#session;
    if (session === null) return;
    try {
      const tools = await this.#list(session);
      if (session !== this.#session) return;
      this.#tools = tools;
      this.#options.onChange();
    } catch (error) {
      this.#warn(`its changed list of tools could not be read: ${messageOf(error)}`);
    }
  }

  async #list(session: McpSession): Promise<readonly ListedTool[]> {
    return await toolsOfServer(session, this.settings.resources, (message) => {
      if (this.#said.isNew(message)) this.#warn(message);
    });
  }

  /** Waits for `ms` milliseconds, or until the connection is stopped. */
  async #wait(ms: number): Promise<void> {
    const { signal } = this.#stopped;
    await new Promise<void>((resolve) => {
      const end = (): void => {
        cancel();
        signal.removeEventListener("abort", end);
        resolve();
      };
      const cancel = this.#clock.setTimeout(end, ms);
      signal.addEventListener("abort", end, { once: true });
    });
  }

  #warn(reason: string): void {
    const { name, secrets } = this.settings;
    const fields = { server: name, reason: redacted(reason, secrets) };
    this.#options.report({ type: "log", level: "warn", fields, message: "problem of an MCP server" });
  }
}
