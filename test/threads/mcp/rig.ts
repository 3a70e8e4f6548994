// MCP rig: the real MCP client thread with real servers. Keeps log lines of all levels.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import type { McpPlaceInit, McpServerSettings, McpServerSource } from "../../../actors/api/agent/mcp.ts";
import type { ServerTool, ServerToolCall, ServerToolResult } from "../../../actors/api/agent/server-tools.ts";
import { McpClient } from "../../../actors/front/mcp-client.ts";
import { createLogger } from "../../../runtime/log/log.ts";

const require = createRequire(import.meta.url);

/** Paths of the programs of the official servers. */
export const officialServers = {
  everything: require.resolve("@modelcontextprotocol/server-everything/dist/index.js"),
  filesystem: require.resolve("@modelcontextprotocol/server-filesystem/dist/index.js"),
  memory: require.resolve("@modelcontextprotocol/server-memory/dist/index.js"),
} as const;

export class McpRig {
  readonly client: McpClient;
  /** Log lines, each as JSON. */
  readonly lines: string[] = [];
  #calls = 0;

  constructor(servers: readonly McpServerSettings[], changes: Partial<McpPlaceInit> = {}) {
    const log = createLogger({ level: "trace", format: "json" }, { write: (line) => this.lines.push(line) });
    const init = {
      servers,
      version: "1.2.3",
      maxConcurrentCalls: 10,
      reservedNames: [],
      sandbox: null,
      mailboxLimit: 4096,
    };
    this.client = new McpClient({ init: { ...init, ...changes }, log });
  }

  /** Starts the client and waits until at least `count` servers are connected. */
  async start(count: number): Promise<void> {
    await this.client.start();
    await until(
      () => this.client.connected >= count,
      `${count} servers are connected`,
      () => this.lines.join(""),
    );
  }

  async stop(): Promise<void> {
    await this.client.stop(10_000);
  }

  tool(name: string): ServerTool {
    const tool = this.client.tools().find(({ spec }) => spec.name === name);
    assert.ok(tool !== undefined, `${name} is a tool: ${this.names().join(", ")}\n${this.lines.join("")}`);
    return tool;
  }

  names(): readonly string[] {
    return this.client.tools().map(({ spec }) => spec.name);
  }

  async call(name: string, args: unknown, changes: Partial<ServerToolCall> = {}): Promise<ServerToolResult> {
    return await this.tool(name).run({
      id: `call_${this.#calls++}`,
      arguments: typeof args === "string" ? args : JSON.stringify(args),
      session: "sess_1",
      client: "a",
      signal: new AbortController().signal,
      onProgress: () => {},
      ask: null,
      ...changes,
    });
  }
}

export function serverSettings(
  name: string,
  source: McpServerSource,
  changes: Partial<McpServerSettings> = {},
): McpServerSettings {
  const rest = { toolPrefix: null, resources: null, callTimeoutMs: 30_000, secrets: [] };
  return { id: name, name, source, ...rest, ...changes };
}

/** Returns settings for a stdio server: a Node.js process that runs the program at `path`. */
export function nodeProcess(path: string, args: readonly string[] = [], environment = {}): McpServerSource {
  return { type: "process", command: process.execPath, args: [path, ...args], environment, workFolder: null };
}

/** Returns a port on which nothing listens. */
export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => probe.once("listening", resolve));
  const { port } = probe.address() as { readonly port: number };
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

export async function until(holds: () => boolean, what: string, details: () => string = () => ""): Promise<void> {
  const deadline = performance.now() + 20_000;
  while (!holds()) {
    assert.ok(performance.now() < deadline, `expected: ${what}\n${details()}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Starts the official server "everything" with an HTTP transport. Resolves when the server accepts connections. */
export async function startHttp(
  port: number,
  mode: "streamableHttp" | "sse",
): Promise<{ readonly port: number; readonly child: ChildProcess }> {
  const env = { ...process.env, PORT: String(port) };
  const child = spawn(process.execPath, [officialServers.everything, mode], { env });
  await new Promise<void>((resolve) => child.stderr.on("data", (text) => /port/.test(String(text)) && resolve()));
  return { port, child };
}
