// Protocol server: implements the MCP methods and offers the models as tools. It is stateless: one is created for each session,
// and one for each request without a session.
import {
  type CallToolResult,
  ProtocolError,
  ProtocolErrorCode,
  Server,
  type ServerContext,
} from "@modelcontextprotocol/server";
import type { Exchange } from "../exchange.ts";
import { isBounded, tooLarge } from "../shared/fields/bounded.ts";
import type { OnProgress } from "./chat-result.ts";
import { type Arguments, ToolBox, type ToolBoxOptions } from "./tools.ts";

const INSTRUCTIONS =
  "The language models of this server, as tools: `chat` answers a conversation, `embed` turns texts into vectors. " +
  "`model` selects a model; without it the default model answers.";

/** Limits on the nesting depth and the number of values of tool arguments. The route behind a tool has stricter limits. */
const argumentBounds = { depth: 128, values: 200_000 };
const TOO_DEEP = tooLarge("arguments", argumentBounds);

/** Returns the exchange from which a Request was created. */
export type ExchangeFinder = (request: Request | undefined) => Exchange | undefined;

/** Creates the protocol server of a session, or of one request without a session. */
export type ServerFactory = (exchangeOf: ExchangeFinder) => Server;

export interface ModelServerOptions extends ToolBoxOptions {
  readonly version: string;
}

/** Creates the factory of protocol servers that offer the models. */
export function modelServers({ version, ...options }: ModelServerOptions): ServerFactory {
  const tools = new ToolBox(options);
  return (exchangeOf) => modelServer(version, tools, exchangeOf);
}

function modelServer(version: string, tools: ToolBox, exchangeOf: ExchangeFinder): Server {
  const server = new Server({ name: "troupe", version }, { capabilities: { tools: {} }, instructions: INSTRUCTIONS });
  server.setRequestHandler("tools/list", () => ({ tools: tools.list() }));
  server.setRequestHandler("tools/call", async ({ params }, context) => {
    const { mcpReq, http } = context;
    const exchange = exchangeOf(http?.req);
    if (exchange === undefined) throw new ProtocolError(ProtocolErrorCode.InternalError, "the request is not known");
    const given = params.arguments ?? {};
    if (!isBounded(given, argumentBounds)) throw new ProtocolError(ProtocolErrorCode.InvalidParams, TOO_DEEP);
    const answer = tools.call(params.name, {
      arguments: given as Arguments,
      caller: exchange.request,
      requestId: exchange.id,
      // The call also ends when the client disconnects, because the result could not be sent.
      signal: AbortSignal.any([mcpReq.signal, exchange.request.signal]),
      onProgress: progress(context),
    });
    return answer ?? unknownTool(params.name, tools);
  });
  return server;
}

/** Returns the progress callback of a tool call; null if the caller has not asked for progress. */
function progress({ mcpReq }: ServerContext): OnProgress | null {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return null;
  return (characters, message) => {
    const params = { progressToken, progress: characters, message };
    // A failed notification is ignored. If the caller has disconnected, the signal aborts the tool call.
    mcpReq.notify({ method: "notifications/progress", params }).catch(() => {});
  };
}

function unknownTool(name: string, tools: ToolBox): CallToolResult {
  const known = tools.list().map((tool) => tool.name);
  const there = known.length === 0 ? "none, as no model is loaded" : known.join(", ");
  const message = `expected one of the tools of this server (${there}), got "${name.slice(0, 100)}"`;
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, message);
}
