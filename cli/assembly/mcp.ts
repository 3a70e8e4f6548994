// MCP server of `troupe serve`: its options from the settings, and its listener. serve.ts imports this module only if mcp_port
// is set, because the import loads the MCP library.
import type { Inference } from "../../actors/api/inference.ts";
import type { App } from "../../http/app.ts";
import { Mcp } from "../../http/mcp/mcp.ts";
import { modelServers } from "../../http/mcp/protocol.ts";
import type { SharedSessions } from "../../http/mcp/sessions.ts";
import { AccessLog } from "../../http/observe/access-log.ts";
import type { ApiKeys } from "../../http/server/access/api-keys.ts";
import { type Listener, listen } from "../../http/server/listen.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { Config } from "../config/config.ts";
import { version } from "../version.ts";

export interface McpListener {
  readonly listener: Listener;
  readonly mcp: Mcp;
}

/** Parts of the server that the MCP server uses. */
export interface McpParts {
  readonly app: App;
  readonly apiKeys: ApiKeys | null;
  readonly inference: Inference;
  readonly log: Logger;
  /** MCP sessions that all replicas share; null if the sessions of this server are not shared. */
  readonly shared: SharedSessions | null;
}

export async function listenMcp(
  { server, troupe }: Config,
  port: number,
  { apiKeys, shared, ...parts }: McpParts,
): Promise<McpListener> {
  const { log } = parts;
  const { host, disableRequestIdHeader, disableAccessLog } = server;
  const { edge, corsOrigins, maxBodyBytesInFlight, reusePort: sharesPort } = troupe;
  const requestTimeoutMs = troupe.requestTimeoutSecs * 1000;
  const trustedProxies = [troupe.trustedProxies ?? []].flat();
  const observers = disableAccessLog ? [] : [new AccessLog(log)];
  const mcp = new Mcp({
    apiKeys,
    shared,
    createServer: modelServers({ ...parts, version }),
    exchange: {
      log,
      disableRequestIdHeader,
      corsOrigins: corsOrigins === null ? null : [corsOrigins].flat(),
      observers,
    },
    config: {
      host,
      allowedHosts: [troupe.allowedHosts ?? []].flat(),
      maxSessions: troupe.mcpMaxSessions,
      sessionIdleMs: troupe.mcpSessionIdleSecs * 1000,
      keepAliveMs: troupe.keepAliveInterval,
      readerStallMs: troupe.stalledReaderSecs * 1000,
    },
  });
  return {
    mcp,
    listener: await listen(mcp, {
      ...{ host, port, sharesPort, edge, maxBodyBytesInFlight, requestTimeoutMs, trustedProxies, log },
    }),
  };
}
