// Owns the node:http edge, which serves where no uWebSockets.js binary loads: the same requests, replies and limits.
import { createServer, type IncomingMessage, type Server } from "node:http";
import { BodyBudget, BodyReader, bringsBody } from "../body.ts";
import type { EdgeHandler, EdgeServer, HttpRequest, OpenEdge } from "../edge.ts";
import { InFlight } from "../in-flight.ts";
import { listenFailure } from "../listen-failure.ts";
import { NodeReply } from "./reply.ts";

/** Connections the kernel may hold for us: a crowd that comes at once must not be sent away by it. */
const LISTEN_BACKLOG = 4096;

class NodeRequest implements HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly headers = new Map<string, string>();
  readonly signal: AbortSignal;
  readonly address: string;
  body: Uint8Array = new Uint8Array(0);

  constructor(incoming: IncomingMessage, signal: AbortSignal) {
    const url = incoming.url ?? "/";
    const queryAt = url.indexOf("?");
    this.method = incoming.method ?? "GET";
    this.path = queryAt < 0 ? url : url.slice(0, queryAt);
    this.query = queryAt < 0 ? "" : url.slice(queryAt + 1);
    for (const name in incoming.headers) {
      const value = incoming.headers[name];
      if (value !== undefined) this.headers.set(name, Array.isArray(value) ? value.join(", ") : value);
    }
    this.signal = signal;
    this.address = incoming.socket.remoteAddress ?? "";
  }
}

/** The edge on node:http. */
export const nodeEdge: OpenEdge = async (handler, { host, port, maxBodyBytesInFlight }) => {
  const inFlight = new InFlight();
  const budget = new BodyBudget(maxBodyBytesInFlight);
  const server = createServer((incoming, response) => {
    const reader = new BodyReader(budget);
    const reply = new NodeReply(response, inFlight, () => reader.release());
    const request = new NodeRequest(incoming, reply.signal);
    if (bringsBody(request.headers)) readBody(incoming, request, reply, reader, handler);
    else handler(request, reply, null);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(listenFailure(host, port, error.code)));
    server.listen({ port, host, backlog: LISTEN_BACKLOG }, resolve);
  }).catch(async (failure) => {
    throw await failure;
  });
  return open(server, inFlight);
};

function open(server: Server, inFlight: InFlight): EdgeServer {
  const address = server.address();
  const close = (): void => {
    if (inFlight.isClosing) return;
    server.close();
    server.closeIdleConnections();
    inFlight.close();
  };
  return {
    port: typeof address === "object" && address !== null ? address.port : 0,
    closed: inFlight.empty.then(() => server.closeAllConnections()),
    close,
    forceClose() {
      close();
      inFlight.abortAll();
    },
  };
}

/** Collects the body, then hands the request over; what follows a refused body is read and thrown away. */
function readBody(
  incoming: IncomingMessage,
  request: NodeRequest,
  reply: NodeReply,
  reader: BodyReader,
  handler: EdgeHandler,
): void {
  let refusal = reader.refuseLength(request.headers.get("content-length"));
  if (refusal !== null) {
    incoming.resume();
    handler(request, reply, refusal);
    return;
  }
  incoming.on("data", (chunk: Buffer) => {
    if (refusal !== null) return;
    refusal = reader.add(chunk);
    if (refusal !== null) handler(request, reply, refusal);
  });
  incoming.on("end", () => {
    if (refusal !== null) return;
    request.body = reader.bytes();
    handler(request, reply, null);
  });
}
