// MCP servers: the connections to all servers of the settings, and the list of their tools.
import type { Clock } from "../../runtime/clock.ts";
import { ServerError } from "../../runtime/errors.ts";
import { SaidOnce } from "../../runtime/log/said-once.ts";
import type { Sandbox } from "../../runtime/sandbox/sandbox.ts";
import type { McpCall, McpReport, McpServerSettings, McpThreadInit } from "../api/agent/mcp.ts";
import type { ToolAnswer } from "../api/agent/questions.ts";
import type { ServerToolResult } from "../api/agent/server-tools.ts";
import { Connection } from "./connection.ts";
import { McpSession, type McpSessionEvents } from "./mcp-session.ts";
import { Questions } from "./questions.ts";
import { redacted } from "./server-calls.ts";
import { nameTools } from "./tool-names.ts";
import { type ServerProcess, startServerProcess } from "./transports/server-process.ts";
import { stderrLines } from "./transports/stderr-lines.ts";

export interface McpServersOptions {
  readonly init: McpThreadInit;
  readonly clock: Clock;
  /** Sandbox for server processes; null = no sandbox. */
  readonly sandbox: Sandbox | null;
  readonly report: (report: McpReport) => void;
}

export class McpServers {
  readonly #options: McpServersOptions;
  readonly #questions: Questions;
  /** Connections by server id, in the order of the settings. */
  readonly #connections: ReadonlyMap<string, Connection>;
  readonly #said = new SaidOnce();

  constructor(options: McpServersOptions) {
    this.#options = options;
    this.#questions = new Questions(options.report);
    const connections = options.init.servers.map((settings) => this.#connection(settings));
    this.#connections = new Map(connections.map((connection) => [connection.settings.id, connection]));
  }

  start(): void {
    for (const connection of this.#connections.values()) connection.start();
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#connections.values()].map((connection) => connection.stop()));
  }

  async call(call: McpCall): Promise<ServerToolResult> {
    const connection = this.#connections.get(call.server);
    if (connection === undefined) throw new ServerError("not_found", `there is no MCP server "${call.server}"`);
    return await connection.call(call);
  }

  cancel(id: string): void {
    for (const connection of this.#connections.values()) connection.cancel(id);
  }

  answer(question: number, answer: ToolAnswer): void {
    this.#questions.answer(question, answer);
  }

  #connection(settings: McpServerSettings): Connection {
    const { init, clock, report } = this.#options;
    return new Connection({
      settings,
      maxConcurrentCalls: init.maxConcurrentCalls,
      clock,
      questions: this.#questions,
      report,
      createSession: (events) => this.#session(settings, events),
      onChange: () => this.#publish(),
    });
  }

  #session(settings: McpServerSettings, events: McpSessionEvents): McpSession {
    const { clock, init } = this.#options;
    const print = (line: string): void => this.#print(settings, line);
    return new McpSession({
      ...events,
      source: settings.source,
      version: init.version,
      clock,
      launch: () => this.#launch(settings),
      onStderr: stderrLines(clock, print),
      onLog: print,
    });
  }

  async #launch({ source }: McpServerSettings): Promise<ServerProcess> {
    const { init, sandbox } = this.#options;
    if (source.type !== "process") throw new Error("only a process can be launched");
    return await startServerProcess(source, init.folder, sandbox);
  }

  /**
   * Reports the tools of all connected servers. Tools of disconnected servers get names too, although they are not reported, so
   * that no name changes when a server connects or disconnects.
   */
  #publish(): void {
    const { init, report } = this.#options;
    const connections = [...this.#connections.values()];
    const named = nameTools(connections, init.reservedNames, (message) => this.#sayOnce(message));
    const connected = connections.filter(({ isConnected }) => isConnected);
    const ids = new Set(connected.map(({ settings }) => settings.id));
    report({ type: "tools", tools: named.filter(({ server }) => ids.has(server)), connected: connected.length });
  }

  #sayOnce(message: string): void {
    if (!this.#said.isNew(message)) return;
    this.#options.report({ type: "log", level: "warn", fields: {}, message });
  }

  #print({ name, secrets }: McpServerSettings, line: string): void {
    const fields = { server: name, line: redacted(line, secrets) };
    this.#options.report({ type: "log", level: "debug", fields, message: "output of an MCP server" });
  }
}
