// Transports of an MCP server: lists the transports to try, in order.
import {
  SdkHttpError,
  SSEClientTransport,
  StreamableHTTPClientTransport,
  type Transport,
} from "@modelcontextprotocol/client";
import type { McpServerSource } from "../../api/agent/mcp.ts";
import { boundedFetch } from "./bounded-fetch.ts";
import type { ServerProcess } from "./server-process.ts";
import { StdioTransport } from "./stdio.ts";
import { WebSocketTransport } from "./websocket.ts";

/**
 * HTTP statuses with which a server that supports only HTTP with SSE responds to the first request (MCP specification: backwards
 * compatibility).
 */
const oldServerStatuses = [400, 404, 405];

const MIN_RECONNECT_MS = 200;
const MAX_RECONNECT_MS = 30_000;

export interface TransportOptions {
  readonly source: McpServerSource;
  readonly launch: () => Promise<ServerProcess>;
  readonly onStderr: (chunk: Buffer) => void;
  /** Called with the reason when the server has ended the connection, or when the connection must be ended. */
  readonly onEnd: (reason: string) => void;
}

/** Returns the transports to try, in order. */
export function transportsOf(options: TransportOptions): readonly (() => Transport)[] {
  const { source, launch, onStderr, onEnd } = options;
  switch (source.type) {
    case "process":
      return [() => new StdioTransport(launch, onStderr, onEnd)];
    case "websocket":
      return [() => new WebSocketTransport(source.url, source.headers, onEnd)];
    case "http":
      return [() => http(StreamableHTTPClientTransport, source, onEnd), () => http(SSEClientTransport, source, onEnd)];
    case "sse":
      return [() => http(SSEClientTransport, source, onEnd)];
  }
}

/** Returns whether the error indicates that the server may support only an older transport. */
export function isOldServer(error: unknown): boolean {
  return error instanceof SdkHttpError && oldServerStatuses.includes(error.status);
}

function http(
  Kind: typeof StreamableHTTPClientTransport | typeof SSEClientTransport,
  { url, headers }: { readonly url: string; readonly headers: Readonly<Record<string, string>> },
  onEnd: (reason: string) => void,
): Transport {
  return new Kind(new URL(url), {
    fetch: boundedFetch(onEnd),
    requestInit: { headers: { ...headers } },
    reconnectionScheduler,
  });
}

/**
 * Reconnects a broken stream after the delay that the server requests, limited to MIN_RECONNECT_MS to MAX_RECONNECT_MS. Returns a
 * function that cancels the wait.
 */
function reconnectionScheduler(reconnect: () => void, delayMs: number): () => void {
  const timer = setTimeout(reconnect, Math.min(MAX_RECONNECT_MS, Math.max(MIN_RECONNECT_MS, delayMs || 0)));
  return () => clearTimeout(timer);
}
