// WebSocket behavior of uWebSockets.js: its callbacks, which open a session for each connection and pass messages to it.
import { MAX_BODY_BYTES } from "../body.ts";
import type { SocketListener } from "../socket/connection.ts";
import { isHandshake, type SocketSessions } from "../socket/sessions.ts";
import type { NativeRequest, NativeResponse, NativeSocket, NativeSocketBehavior } from "./native.ts";
import type { UwsRequest } from "./request.ts";
import { UwsSocket } from "./socket.ts";

/** Number of buffered bytes above which uWS drops messages. Never reached, because senders wait while bytes are buffered. */
const MAX_BUFFERED_BYTES = 64 * 2 ** 20;
/** Idle timeout in seconds, the maximum of uWS. Sessions ping more often, so only connections to unreachable clients time out. */
const IDLE_SECS = 960;

interface OpenSocket {
  readonly connection: UwsSocket;
  readonly listener: SocketListener;
}

/**
 * Creates the WebSocket behavior of the server. `read`: passes a request to its handler. The handler may upgrade the connection
 * only before `read` returns.
 */
export function socketBehavior(
  sessions: SocketSessions,
  requestOf: (response: NativeResponse, request: NativeRequest) => UwsRequest,
  read: (response: NativeResponse, request: UwsRequest) => void,
): NativeSocketBehavior {
  const sockets = new WeakMap<NativeSocket, OpenSocket>();
  /** Request whose handshake is in progress. It is kept for `open`, which uWS calls within `upgrade`. */
  let handshake: UwsRequest | null = null;
  return {
    maxPayloadLength: MAX_BODY_BYTES,
    maxBackpressure: MAX_BUFFERED_BYTES,
    idleTimeout: IDLE_SECS,
    upgrade(response, native, context) {
      const request = requestOf(response, native);
      const { headers, reply } = request;
      if (isHandshake(headers)) {
        const [key, protocol, extensions] = ["key", "protocol", "extensions"].map(
          (name) => headers.get(`sec-websocket-${name}`) ?? "",
        ) as [string, string, string];
        reply.upgrade = (replyHeaders) => {
          const refusal = sessions.refusal(request);
          if (refusal !== null) return refusal;
          handshake = request;
          reply.switchProtocol(replyHeaders, () => response.upgrade({}, key, protocol, extensions, context));
          handshake = null;
          return null;
        };
      }
      read(response, request);
    },
    open(socket) {
      if (handshake === null) return;
      const connection = new UwsSocket(socket);
      sockets.set(socket, { connection, listener: sessions.open(connection, handshake) });
    },
    message(socket, data) {
      // uWS detaches the data when this callback returns, so it must be copied.
      sockets.get(socket)?.listener.message(new Uint8Array(data.slice(0)));
    },
    drain: (socket) => sockets.get(socket)?.connection.hasSent(),
    close(socket) {
      const open = sockets.get(socket);
      open?.connection.hasClosed();
      open?.listener.closed();
    },
  };
}
