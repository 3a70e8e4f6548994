// HTTP front end on uWebSockets.js (uWS). A uWS request object is valid only during its callback, so the callback first copies
// all data to an HttpRequest. It also registers `onAborted`, as uWS requires.

import { setTimeout as sleep } from "node:timers/promises";
import { BodyIntake } from "../body-intake.ts";
import type { OpenEdge } from "../edge.ts";
import { framingFault, headersTooLarge, MAX_HEADER_BYTES } from "../framing.ts";
import { InFlight } from "../in-flight.ts";
import { afterAccept } from "../port/shared-port.ts";
import { SocketSessions } from "../socket/sessions.ts";
import { ListenGate } from "./listen-gate.ts";
import type { Native, NativeRequest, NativeResponse } from "./native.ts";
import { UwsRequest } from "./request.ts";
import { socketBehavior } from "./socket-behavior.ts";

/** Delay in ms before sockets are closed. uWS flushes its buffer after end(), but does not report when the flush is done. */
const FLUSH_MS = 100;

/** Creates the HTTP front end from a loaded uWebSockets.js binary. */
export function uwsEdge(native: Native): OpenEdge {
  return async (handler, options) => {
    const { host, port, sharesPort = false } = options;
    const inFlight = new InFlight();
    const intake = new BodyIntake(handler, options);
    const sessions = new SocketSessions(intake, inFlight, options);
    const requestOf = (response: NativeResponse, request: NativeRequest): UwsRequest =>
      new UwsRequest(response, request, inFlight, options.addressOf);
    const read = (response: NativeResponse, ours: UwsRequest): void => {
      const refusal = ours.headerBytes > MAX_HEADER_BYTES ? headersTooLarge() : framingFault(ours);
      // A rejected request is answered after this callback. If the response ended within the callback, uWS would process the
      // next request of the connection before the connection closes. uWS processes no further request while a response is open.
      if (refusal !== null) setImmediate(() => intake.refuse(ours, ours.reply, refusal));
      else readBody(response, ours, intake);
    };
    const app = native
      .App()
      .ws("/*", socketBehavior(sessions, requestOf, read))
      .any("/*", (response, request) => read(response, requestOf(response, request)));
    const gate = await ListenGate.open({ native, app, host, port, sharesPort, onFull: options.onFull ?? (() => {}) });
    const retired = (): boolean => {
      if (sharesPort) afterAccept(() => gate.close());
      sessions.drain();
      return sharesPort;
    };
    const stopAccepting = (): void => {
      gate.close();
      sessions.drain();
    };
    const stop = async (): Promise<void> => {
      await sessions.ended();
      await sleep(FLUSH_MS);
      app.close();
      intake.stop();
    };
    return inFlight.server({ port: gate.port, retired, stopAccepting, stop });
  };
}

/** Passes a request to its handler when the body, if any, is complete. After a rejection, uWS discards the rest of the body. */
function readBody(response: NativeResponse, request: UwsRequest, intake: BodyIntake): void {
  const { reply } = request;
  const reception = intake.begin(request, reply);
  if (reception === null) return;
  reply.onDone = () => reception.done();
  response.onData((chunk, isLast) => {
    if (reply.isDone) return;
    // uWS detaches the chunk when this callback returns, so it must be copied.
    const wait = chunk.byteLength > 0 ? reception.add(new Uint8Array(chunk.slice(0))) : null;
    if (wait !== null && !isLast) {
      response.pause();
      void wait.then(() => {
        if (!reply.isDone) response.resume();
      });
    }
    if (isLast) reception.end();
  });
}
