// Owns the uWebSockets.js edge: listening, reading a request into our HttpRequest, closing. uWS's request object dies
// when its callback returns, so everything is copied from it first; `onAborted` is registered in the same callback.

import { BodyBudget, BodyReader, bringsBody } from "../body.ts";
import type { EdgeHandler, EdgeServer, HttpRequest, OpenEdge } from "../edge.ts";
import { InFlight } from "../in-flight.ts";
import { listenFailure } from "../listen-failure.ts";
import type { Native, NativeRequest, NativeResponse } from "./native.ts";
import { UwsReply } from "./reply.ts";

/** What end() left in uWS's own buffer is flushed without a word to us: closing the sockets waits this long for it. */
const FLUSH_MS = 100;

class UwsRequest implements HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly headers = new Map<string, string>();
  readonly reply: UwsReply;
  readonly address: string;
  body: Uint8Array = new Uint8Array(0);

  constructor(response: NativeResponse, request: NativeRequest, inFlight: InFlight) {
    this.method = request.getCaseSensitiveMethod().toUpperCase();
    this.path = request.getUrl();
    this.query = request.getQuery();
    request.forEach((name, value) => {
      const earlier = this.headers.get(name);
      this.headers.set(name, earlier === undefined ? value : `${earlier}, ${value}`);
    });
    this.address = Buffer.from(response.getRemoteAddressAsText()).toString("latin1");
    this.reply = new UwsReply(response, this.method === "HEAD", inFlight);
  }

  get signal(): AbortSignal {
    return this.reply.signal;
  }
}

/** The edge on a loaded uWebSockets.js. */
export function uwsEdge(native: Native): OpenEdge {
  return async (handler, { host, port, maxBodyBytesInFlight }) => {
    const inFlight = new InFlight();
    const budget = new BodyBudget(maxBodyBytesInFlight);
    const app = native.App().any("/*", (response, request) => {
      const ours = new UwsRequest(response, request, inFlight);
      // Of two lengths uWS takes the first; a proxy in front may have taken the other, and seen another request's start.
      if (ours.headers.get("content-length")?.includes(",")) {
        ours.reply.abort();
        return;
      }
      if (bringsBody(ours.headers)) readBody(response, ours, new BodyReader(budget), handler);
      else handler(ours, ours.reply, null);
    });
    // Without the exclusive option uWS would share a port that another server already has.
    const socket = await new Promise<object | false>((resolve) => {
      app.listen(host, port, native.LIBUS_LISTEN_EXCLUSIVE_PORT, resolve);
    });
    if (socket === false) throw await listenFailure(host, port);
    return server(native, app, socket, inFlight);
  };
}

function server(native: Native, app: ReturnType<Native["App"]>, socket: object, inFlight: InFlight): EdgeServer {
  const flushed = inFlight.empty.then(() => new Promise<void>((resolve) => setTimeout(resolve, FLUSH_MS)));
  const closed = flushed.then(() => {
    app.close();
  });
  const port = native.us_socket_local_port(socket);
  const close = (): void => {
    if (inFlight.isClosing) return;
    native.us_listen_socket_close(socket);
    inFlight.close();
  };
  return {
    port,
    closed,
    close,
    forceClose() {
      close();
      inFlight.abortAll();
    },
  };
}

/** Collects the body, then hands the request over; a body refused midway is answered at once and the rest discarded by uWS. */
function readBody(response: NativeResponse, request: UwsRequest, reader: BodyReader, handler: EdgeHandler): void {
  const { reply } = request;
  reply.onDone = () => reader.release();
  const refusal = reader.refuseLength(request.headers.get("content-length"));
  if (refusal !== null) {
    handler(request, reply, refusal);
    return;
  }
  response.onData((chunk, isLast) => {
    if (reply.isDone) return;
    // The chunk is detached when this callback returns: it must be copied.
    const refused = chunk.byteLength === 0 ? null : reader.add(new Uint8Array(chunk.slice(0)));
    if (refused === null && !isLast) return;
    if (refused === null) request.body = reader.bytes();
    handler(request, reply, refused);
  });
}
