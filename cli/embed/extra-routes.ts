// Extra routes of an embedding program: fetch-style handlers in addition to the server's routes. The server's access log, body
// limits and request ids apply to them.
import { buffer } from "node:stream/consumers";
import type { Exchange } from "../../http/exchange.ts";
import type { DescribedRoute } from "../../http/route.ts";
import { type Route, routes } from "../../http/routes.ts";
import { writePiece } from "../../http/server/write-piece.ts";
import { ServerError } from "../../runtime/errors.ts";

export interface ExtraRoute {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Path below the base path; a segment in braces is a parameter: `/notes/{note}`. */
  readonly path: string;
  readonly handler: (request: Request, parameters: Readonly<Record<string, string>>) => Response | Promise<Response>;
}

const operation: DescribedRoute["operation"] = {
  id: "extraRoute",
  tag: "Operations",
  summary: "Route of the embedding program",
  answers: {},
  errors: [],
};

/**
 * Converts the handlers to routes of the server. `readerStallMs`: time in ms after which a client that does not read is
 * disconnected.
 */
export function extraRoutes(given: readonly ExtraRoute[], readerStallMs: number): Route[] {
  return given.map(({ method, path, handler }) => {
    if (!path.startsWith("/")) throw invalid(`expected the path of a route to start with "/"; got "${path}"`);
    if (routes.some((own) => own.method === method && shapeOf(own.path) === shapeOf(path))) {
      throw invalid(`${method} ${path} is a route of troupe; use another path`);
    }
    return {
      method,
      path,
      kind: "resource",
      operation,
      handler: async (exchange) => {
        const response = await handler(toRequest(exchange), exchange.parameters);
        await send(exchange, response, readerStallMs);
      },
    };
  });
}

/** Returns a path without the names of its parameters. */
function shapeOf(path: string): string {
  return path.replaceAll(/\{[^}]*\}/g, "{}");
}

function toRequest({ request }: Exchange): Request {
  const { method, path, query, headers, body, signal } = request;
  const url = `http://${headers.get("host") ?? "localhost"}${path}${query === "" ? "" : `?${query}`}`;
  const hasBody = method !== "GET" && method !== "HEAD" && body.length > 0;
  return new Request(url, {
    method,
    headers: [...headers].filter(([name]) => name !== "transfer-encoding"),
    body: hasBody ? new Uint8Array(body) : null,
    signal,
  });
}

async function send(exchange: Exchange, response: Response, readerStallMs: number): Promise<void> {
  const cookies = response.headers.getSetCookie();
  // The entries of a Response have each cookie separately, so an object of them would keep only the last one.
  const headers = { ...Object.fromEntries(response.headers), ...(cookies.length > 0 && { "set-cookie": cookies }) };
  // Only a response of status 200 is streamed. The body of any other response is sent as a whole.
  if (response.status !== 200 || response.body === null) {
    const body = response.body === null ? new Uint8Array(0) : await buffer(response.body);
    exchange.send(response.status, headers, body);
    return;
  }
  const sink = exchange.openStream(headers);
  for await (const piece of response.body) {
    if (exchange.request.signal.aborted) return;
    await writePiece(sink, piece, readerStallMs);
  }
  sink.end();
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}
