// Owns what this server says in the protocol: who it is, its tools, and how a call of one goes. One is made for each session,
// and for each request that has none; it keeps nothing.
import {
  type CallToolResult,
  ProtocolError,
  ProtocolErrorCode,
  Server,
  type ServerContext,
} from "@modelcontextprotocol/server";
import type { Exchange } from "../exchange.ts";
import { isBounded, tooLarge } from "../shared/fields/bounded.ts";
import type { OnProgress } from "./chat-fold.ts";
import { type Arguments, ToolBox, type ToolBoxOptions } from "./tools.ts";

const INSTRUCTIONS =
  "The language models of this server, as tools: `chat` answers a conversation, `embed` turns texts into vectors. " +
  "`model` names one of several models; left out, the default one answers.";

/** Room for a schema of a tool, which is bounded by the route. */
const argumentBounds = { depth: 128, values: 200_000 };
const TOO_DEEP = tooLarge("arguments", argumentBounds);

/** The exchange that a request of the web was made from. */
export type ExchangeFinder = (request: Request | undefined) => Exchange | undefined;

/** Makes what answers the messages of a session, or of one request. */
export type ServerFactory = (exchangeOf: ExchangeFinder) => Server;

export interface ModelServerOptions extends ToolBoxOptions {
  readonly version: string;
}

/** The server that offers the models. */
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
      // Whoever is gone can no longer be given the result.
      signal: AbortSignal.any([mcpReq.signal, exchange.request.signal]),
      onProgress: progress(context),
    });
    return answer ?? unknownTool(params.name, tools);
  });
  return server;
}

/** null where the caller does not want to be told. */
function progress({ mcpReq }: ServerContext): OnProgress | null {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return null;
  return (characters, message) => {
    const params = { progressToken, progress: characters, message };
    // A caller that has gone is noticed by its signal.
    mcpReq.notify({ method: "notifications/progress", params }).catch(() => {});
  };
}

function unknownTool(name: string, tools: ToolBox): CallToolResult {
  const known = tools.list().map((tool) => tool.name);
  const there = known.length === 0 ? "none, as no model is loaded" : known.join(", ");
  const message = `expected one of the tools of this server (${there}), got "${name.slice(0, 100)}"`;
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, message);
}
