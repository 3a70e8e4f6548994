// Request on node:http, and reading of its body.
import type { IncomingMessage } from "node:http";
import type { AddressOf } from "../access/trusted-proxies.ts";
import { type BodyIntake, EdgeRequest } from "../body-intake.ts";
import type { NodeReply } from "./reply.ts";

export class NodeRequest extends EdgeRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly signal: AbortSignal;
  readonly address: string;

  /** `url`: path and query; default: as in the request line. `addressOf`: see EdgeOptions. */
  constructor(incoming: IncomingMessage, signal: AbortSignal, url = incoming.url ?? "/", addressOf?: AddressOf) {
    super();
    const queryAt = url.indexOf("?");
    this.method = incoming.method ?? "GET";
    this.path = queryAt < 0 ? url : url.slice(0, queryAt);
    this.query = queryAt < 0 ? "" : url.slice(queryAt + 1);
    // The raw headers are read, because node's parsed headers drop the second value of some repeated headers.
    const { rawHeaders } = incoming;
    for (let i = 0; i < rawHeaders.length; i += 2) {
      this.addHeader((rawHeaders[i] ?? "").toLowerCase(), rawHeaders[i + 1] ?? "");
    }
    this.signal = signal;
    const peer = incoming.socket.remoteAddress ?? "";
    this.address = addressOf?.(peer, this.headers) ?? peer;
  }
}

/**
 * Passes a request to its handler when the body, if any, is complete. After a rejection, the rest of the body is read and
 * discarded.
 */
export function readBody(incoming: IncomingMessage, request: NodeRequest, reply: NodeReply, intake: BodyIntake): void {
  const reception = intake.begin(request, reply);
  if (reception === null) {
    incoming.resume();
    return;
  }
  reply.onDone = () => reception.done();
  incoming.on("data", (chunk: Buffer) => {
    const wait = reception.add(chunk);
    if (wait === null) return;
    incoming.pause();
    void wait.then(() => incoming.resume());
  });
  incoming.on("end", () => reception.end());
}
