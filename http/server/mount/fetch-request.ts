// Request of a fetch-style handler, and reading of its body.
import { type BodyIntake, EdgeRequest, type Reception } from "../body-intake.ts";
import type { FetchReply } from "./fetch-reply.ts";

export class FetchRequest extends EdgeRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly signal: AbortSignal;
  readonly address: string;

  /** `url`: path and query without the base path. */
  constructor({ method, headers, url: whole, body }: Request, url: string, signal: AbortSignal, address: string) {
    super();
    const queryAt = url.indexOf("?");
    this.method = method;
    this.path = queryAt < 0 ? url : url.slice(0, queryAt);
    this.query = queryAt < 0 ? "" : url.slice(queryAt + 1);
    for (const [name, value] of headers) this.addHeader(name, value);
    // A request that did not arrive on a socket may lack headers that HTTP/1.1 requires, so these are added.
    if (!this.headers.has("host")) this.addHeader("host", new URL(whole).host);
    if (body !== null && !this.headers.has("content-length")) this.addHeader("transfer-encoding", "chunked");
    this.signal = signal;
    this.address = address;
  }
}

/** Passes a request to its handler when the body is complete. After a rejection, the rest of the body is not read. */
export async function receiveBody(
  body: ReadableStream<Uint8Array> | null,
  request: FetchRequest,
  reply: FetchReply,
  intake: BodyIntake,
): Promise<void> {
  const reception = intake.begin(request, reply);
  if (reception === null) {
    await body?.cancel();
    return;
  }
  reply.onDone = () => reception.done();
  try {
    if (body !== null) await readInto(reception, body, reply);
    reception.end();
  } catch {
    // The client has disconnected before the body was complete.
    reply.gone();
  }
}

async function readInto(reception: Reception, body: ReadableStream<Uint8Array>, reply: FetchReply): Promise<void> {
  for await (const chunk of body) {
    await reception.add(chunk);
    if (reply.isAnswered) return;
  }
}
