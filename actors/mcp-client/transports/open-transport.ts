// Transports of a server: lists the transports to try, in order, and tells why a connection has ended.
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
 * Statuses with which a server that only supports HTTP with SSE answers the first request (specification of MCP:
 * backwards compatibility).
 */
const oldServerStatuses = [400, 404, 405];

const MIN_RECONNECT_MS = 200;
const MAX_RECONNECT_MS = 30_000;

export interface OpenTransport {
  readonly transport: Transport;
  /** Why the connection has ended; null: not known. */
  endReason(): string | null;
}

export interface TransportOptions {
  readonly source: McpServerSource;
  readonly launch: () => Promise<ServerProcess>;
  readonly onStderr: (chunk: Buffer) => void;
  /** Called if the connection must end, with the reason. */
  readonly onFault: (reason: string) => void;
}

/** Returns the transports to try, in order. */
export function transportsOf(options: TransportOptions): readonly [() => OpenTransport, ...(() => OpenTransport)[]] {
  const { source, launch, onStderr, onFault } = options;
  switch (source.type) {
    case "process":
      return [() => ended(new StdioTransport(launch, onStderr))];
    case "websocket":
      return [() => ended(new WebSocketTransport(source.url, source.headers))];
    case "http":
      return [
        () => http(StreamableHTTPClientTransport, source, onFault),
        () => http(SSEClientTransport, source, onFault),
      ];
    case "sse":
      return [() => http(SSEClientTransport, source, onFault)];
  }
}

/** Whether the error says that the server may support only an older transport. */
export function isOldServer(error: unknown): boolean {
  return error instanceof SdkHttpError && oldServerStatuses.includes(error.status);
}

function ended(transport: Transport & { readonly endReason: string | null }): OpenTransport {
  return { transport, endReason: () => transport.endReason };
}

function http(
  Kind: typeof StreamableHTTPClientTransport | typeof SSEClientTransport,
  { url, headers }: { readonly url: string; readonly headers: Readonly<Record<string, string>> },
  onFault: (reason: string) => void,
): OpenTransport {
  const transport = new Kind(new URL(url), {
    fetch: boundedFetch(onFault),
    requestInit: { headers: { ...headers } },
    reconnectionScheduler,
  });
  return { transport, endReason: () => null };
}

/**
 * Reconnects a broken stream after the server's delay, kept within the limits above. Returns a function that cancels
 * the wait.
 */
function reconnectionScheduler(reconnect: () => void, delayMs: number): () => void {
  const timer = setTimeout(reconnect, Math.min(MAX_RECONNECT_MS, Math.max(MIN_RECONNECT_MS, delayMs || 0)));
  return () => clearTimeout(timer);
}
