// HTTP front end on uWebSockets.js (uWS). A uWS request object is valid only during its callback, so the callback first copies
// everything to an HttpRequest. It also registers `onAborted`, which uWS requires in the same callback.

import { setTimeout as sleep } from "node:timers/promises";
import { BodyIntake, EdgeRequest } from "../body-intake.ts";
import type { OpenEdge } from "../edge.ts";
import { framingFault, headersTooLarge, MAX_HEADER_BYTES } from "../framing.ts";
import { InFlight } from "../in-flight.ts";
import { ListenGate } from "./listen-gate.ts";
import type { Native, NativeRequest, NativeResponse } from "./native.ts";
import { UwsReply } from "./reply.ts";

/** Delay before sockets are closed, because uWS flushes its buffer after end() and does not report when the flush is done. */
const FLUSH_MS = 100;

class UwsRequest extends EdgeRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly headerBytes: number;
  readonly reply: UwsReply;
  readonly address: string;

  constructor(response: NativeResponse, request: NativeRequest, inFlight: InFlight) {
    super();
    this.method = request.getCaseSensitiveMethod().toUpperCase();
    this.path = request.getUrl();
    this.query = request.getQuery() ?? "";
    let headerBytes = this.path.length + this.query.length;
    request.forEach((name, value) => {
      headerBytes += name.length + value.length;
      this.addHeader(name, value);
    });
    this.headerBytes = headerBytes;
    this.address = Buffer.from(response.getRemoteAddressAsText()).toString("latin1");
    this.reply = new UwsReply(response, this.method === "HEAD", inFlight);
  }

  get signal(): AbortSignal {
    return this.reply.signal;
  }
}

/** Creates the HTTP front end from a loaded uWebSockets.js binary. */
export function uwsEdge(native: Native): OpenEdge {
  return async (handler, options) => {
    const { host, port } = options;
    const inFlight = new InFlight();
    const intake = new BodyIntake(handler, options);
    const app = native.App().any("/*", (response, request) => {
      const ours = new UwsRequest(response, request, inFlight);
      const refusal = ours.headerBytes > MAX_HEADER_BYTES ? headersTooLarge() : framingFault(ours);
      // A rejected request is answered after this callback. If the response ended within the callback, uWS would process the
      // connection's next request before the connection closes. While a response is open, the next request waits.
      if (refusal !== null) setImmediate(() => intake.refuse(ours, ours.reply, refusal));
      else readBody(response, ours, intake);
    });
    const gate = await ListenGate.open({ native, app, host, port, onFull: options.onFull ?? (() => {}) });
    const stop = async (): Promise<void> => {
      await sleep(FLUSH_MS);
      app.close();
      intake.stop();
    };
    return inFlight.server(gate.port, () => gate.close(), stop);
  };
}

/** Passes a request to its handler when its body, if any, is complete. uWS discards the rest of a rejected body. */
function readBody(response: NativeResponse, request: UwsRequest, intake: BodyIntake): void {
  const { reply } = request;
  const reception = intake.begin(request, reply);
  if (reception === null) return;
  reply.onDone = () => reception.done();
  response.onData((chunk, isLast) => {
    if (reply.isDone) return;
    // uWS detaches the chunk when this callback returns, so it must be copied.
    if (chunk.byteLength > 0) reception.add(new Uint8Array(chunk.slice(0)));
    if (isLast) reception.end();
  });
}
