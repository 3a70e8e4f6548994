// Request of a fetch-style handler, and the reader of its body.
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
    // A request that did not come over a socket may lack the headers that HTTP/1.1 requires. They are added here.
    if (!this.headers.has("host")) this.addHeader("host", new URL(whole).host);
    if (body !== null && !this.headers.has("content-length")) this.addHeader("transfer-encoding", "chunked");
    this.signal = signal;
    this.address = address;
  }
}

/** Passes a request to its handler when its body is complete. The rest of a rejected body is not read. */
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
    // The client disconnected while it sent the body.
    reply.gone();
  }
}

async function readInto(reception: Reception, body: ReadableStream<Uint8Array>, reply: FetchReply): Promise<void> {
  for await (const chunk of body) {
    await reception.add(chunk);
    if (reply.isAnswered) return;
  }
}
