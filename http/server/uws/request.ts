// Request on uWebSockets.js, with its reply. It copies everything from the native request, which is valid only during a callback.
import type { AddressOf } from "../access/trusted-proxies.ts";
import { EdgeRequest } from "../body-intake.ts";
import type { InFlight } from "../in-flight.ts";
import type { NativeRequest, NativeResponse } from "./native.ts";
import { UwsReply } from "./reply.ts";

export class UwsRequest extends EdgeRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly headerBytes: number;
  readonly reply: UwsReply;
  readonly address: string;

  constructor(response: NativeResponse, request: NativeRequest, inFlight: InFlight, addressOf?: AddressOf) {
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
    const peer = Buffer.from(response.getRemoteAddressAsText()).toString("latin1");
    this.address = addressOf?.(peer, this.headers) ?? peer;
    this.reply = new UwsReply(response, this.method === "HEAD", inFlight);
  }

  get signal(): AbortSignal {
    return this.reply.signal;
  }
}
