// HTTP front end on node:http. Used if no uWebSockets.js binary can be loaded, with the same requests, replies and limits.
import { createServer, type IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { ServerError } from "../../../runtime/errors.ts";
import { errorBody, statusOf } from "../../errors.ts";
import { BodyIntake } from "../body-intake.ts";
import { ConnectionCount, fullAtFiles } from "../connection-limit.ts";
import type { OpenEdge } from "../edge.ts";
import { framingFault, headersTooLarge, MAX_HEADER_BYTES } from "../framing.ts";
import { InFlight } from "../in-flight.ts";
import { listenFailure } from "../port/listen-failure.ts";
import { afterAccept, checkSharedPort } from "../port/shared-port.ts";
import { SocketSessions } from "../socket/sessions.ts";
import { NodeReply } from "./reply.ts";
import { NodeRequest, readBody } from "./request.ts";
import { acceptSocket, Incoming } from "./socket.ts";
import { lastResponse, type ParserError, requestOfUnknownMethod } from "./unknown-method.ts";

/** Length of the kernel's queue of new connections, large enough for a burst of connections. */
const LISTEN_BACKLOG = 4096;

/**
 * Maximum time in ms for which a connection may wait for a request's headers or for its next request; the same as in
 * uWebSockets.js.
 */
const IDLE_LIMIT_MS = 10_000;
/**
 * Time in ms without progress after which a client that leaves the rest of a complete response unread is disconnected; node may
 * need twice the time to notice. Longer than IDLE_LIMIT_MS, so that a client whose headers stall is sent an error first.
 */
const UNREAD_LIMIT_MS = 12_000;
/** Interval in ms at which node checks connections against IDLE_LIMIT_MS. */
const CHECK_EVERY_MS = 1000;

const limits = {
  headersTimeout: IDLE_LIMIT_MS,
  keepAliveTimeout: IDLE_LIMIT_MS,
  // node's request timeout is disabled, because BodyIntake enforces the deadlines of bodies.
  requestTimeout: 0,
  connectionsCheckingInterval: CHECK_EVERY_MS,
  maxHeaderSize: MAX_HEADER_BYTES,
  IncomingMessage: Incoming,
};

const connectionCount = new ConnectionCount(fullAtFiles());

/** State of one connection. */
class Connection {
  /** Whether the connection is closing: its last response is in progress, and no further requests are read. */
  isRefused = false;
  /** Replies in progress. There are several if the client pipelines requests. */
  readonly replies = new Set<NodeReply>();

  constructor(socket: Socket) {
    socket.once("close", () => {
      connectionCount.delete();
      for (const reply of this.replies) reply.connectionClosed();
    });
  }

  /** Whether no request is being handled. The client may still have to read the rest of the last response. */
  get isIdle(): boolean {
    // Pipelined responses are sent in order, so the first one is the one being sent.
    const [first] = this.replies;
    return first === undefined || first.isEnded;
  }
}

export const nodeEdge: OpenEdge = async (handler, options) => {
  const { host, port, sharesPort = false } = options;
  if (sharesPort) checkSharedPort();
  const inFlight = new InFlight();
  const intake = new BodyIntake(handler, options);
  const sessions = new SocketSessions(intake, inFlight, options);
  const connections = new WeakMap<Socket, Connection>();
  const requestOf = (incoming: IncomingMessage, signal: AbortSignal): NodeRequest =>
    new NodeRequest(incoming, signal, undefined, options.addressOf);
  const server = createServer(limits, (incoming, response) => {
    const connection = connections.get(incoming.socket);
    if (connection === undefined || connection.isRefused) return;
    const reply = new NodeReply(response, inFlight, connection.replies);
    const request = requestOf(incoming, reply.signal);
    const refusal = versionFault(incoming) ?? framingFault(request);
    if (refusal === null) {
      readBody(incoming, request, reply, intake);
      return;
    }
    connection.isRefused = true;
    intake.refuse(request, reply, refusal);
  });
  // No limit on the number of headers: MAX_HEADER_BYTES limits their size. By default node drops the headers after the first 1000.
  server.maxHeadersCount = 0;
  // With this listener, node leaves it to us to close idle connections.
  server.setTimeout(UNREAD_LIMIT_MS, (socket) => {
    if (connections.get(socket)?.isIdle !== false) socket.destroy();
  });
  server.on("upgrade", (incoming: IncomingMessage, raw: Duplex, head: Buffer) => {
    const { socket } = incoming;
    const connection = connections.get(socket);
    raw.on("error", () => {});
    // A WebSocket handshake before the previous response is complete violates the protocol.
    if (connection === undefined || connection.isRefused || connection.replies.size > 0) {
      raw.destroy();
      return;
    }
    const response = responseOn(incoming);
    const reply = new NodeReply(response, inFlight, connection.replies);
    const request = requestOf(incoming, reply.signal);
    reply.closesConnection = true;
    reply.upgrade = (headers) => {
      const full = sessions.refusal(request);
      if (full !== null) return full;
      reply.protocolSwitched();
      response.detachSocket(socket);
      acceptSocket({ incoming, raw, head }, headers, (accepted) => sessions.open(accepted, request));
      return null;
    };
    const refusal = versionFault(incoming) ?? framingFault(request);
    if (refusal === null) intake.begin(request, reply);
    else intake.refuse(request, reply, refusal);
  });
  server.on("connection", (socket) => {
    connections.set(socket, new Connection(socket));
    if (connectionCount.add()) return;
    socket.destroy();
    options.onFull?.();
  });
  /** Handles the last request of a connection: does not read its body or any later request, and closes the connection. */
  const answerLast = (incoming: IncomingMessage, socket: Socket): void => {
    const connection = connections.get(socket);
    if (connection === undefined || connection.isRefused) return;
    connection.isRefused = true;
    const reply = new NodeReply(lastResponse(incoming, socket), inFlight, connection.replies);
    reply.closesConnection = true;
    const request = requestOf(incoming, reply.signal);
    handler(request, reply, framingFault(request));
  };
  server.on("connect", (incoming, socket) => answerLast(incoming, socket as Socket));
  server.on("clientError", (error: ParserError, socket: Socket) => {
    const isFree = (connections.get(socket)?.replies.size ?? 0) === 0;
    const request = isFree ? requestOfUnknownMethod(error, socket) : null;
    if (request === null) answerUnreadable(error, socket);
    else answerLast(request, socket);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(listenFailure(host, port, error.code)));
    // The types of Node 20 (@types/node) lack reusePort, which newer Node.js versions support.
    server.listen({ port, host, backlog: LISTEN_BACKLOG, ...(sharesPort ? { reusePort: true } : {}) }, resolve);
  }).catch(async (failure) => {
    throw await failure;
  });
  const address = server.address();
  return inFlight.server({
    port: typeof address === "object" && address !== null ? address.port : 0,
    retired: () => {
      if (sharesPort) afterAccept(() => server.close());
      sessions.drain();
      return sharesPort;
    },
    stopAccepting: () => {
      server.close();
      server.closeIdleConnections();
      sessions.drain();
    },
    stop: async () => {
      await sessions.ended();
      server.closeAllConnections();
      intake.stop();
    },
  });
};

/** Creates the response to a WebSocket handshake that is rejected. The connection closes after this response. */
function responseOn(incoming: IncomingMessage): ServerResponse {
  const response = new ServerResponse(incoming);
  response.assignSocket(incoming.socket);
  response.on("finish", () => incoming.socket.destroySoon());
  return response;
}

/** Returns an error if node's parser accepts the request's HTTP version but this server does not; otherwise null. */
function versionFault({ httpVersion }: IncomingMessage): ServerError | null {
  if (httpVersion === "1.1" || httpVersion === "1.0") return null;
  return new ServerError("invalid_request", `expected HTTP/1.1, got HTTP/${httpVersion}; the connection is closed`);
}

/** Responds to input that is not a valid request or arrives too slowly, and closes the connection. */
function answerUnreadable(error: NodeJS.ErrnoException, socket: Duplex): void {
  // The error response is sent only if no bytes were sent on this connection, because the client would otherwise read it as
  // part of an earlier response.
  const isFree = socket.writable && (socket as Socket).bytesWritten === 0;
  if (isFree && error.code !== "ECONNRESET") socket.end(unreadableAnswer(refusalOf(error)), () => socket.destroy());
  else socket.destroy();
}

function refusalOf({ code, message }: NodeJS.ErrnoException): ServerError {
  if (code === "HPE_HEADER_OVERFLOW") return headersTooLarge();
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") {
    return new ServerError("request_timeout", `expected a request's headers within ${IDLE_LIMIT_MS / 1000} s`);
  }
  return new ServerError("invalid_request", `expected a request in HTTP/1.1; ${message}; the connection is closed`);
}

const reasons: Readonly<Record<number, string>> = {
  400: "Bad Request",
  408: "Request Timeout",
  431: "Request Header Fields Too Large",
};

function unreadableAnswer(refusal: ServerError): string {
  const { code, message } = refusal;
  const status = statusOf(code);
  const body = errorBody({ code, message });
  const head = `HTTP/1.1 ${status} ${reasons[status] ?? ""}\r\nconnection: close\r\ncontent-type: application/json`;
  return `${head}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}
