// Bridge: converts an exchange to a Request of the Fetch API, and the MCP library's Response to the reply. A body or stream is
// sent with back pressure, until the client disconnects.
import { ServerError } from "../../runtime/errors.ts";
import type { Exchange } from "../exchange.ts";
import type { HttpRequest, ReplyHeaders, StreamSink } from "../server/edge.ts";
import { drained } from "../server/write-piece.ts";
import { isResponse } from "./messages.ts";

const EVENT_STREAM = "text/event-stream";
/**
 * Accept header passed to the MCP library, which requires both JSON and event streams. The response is converted to JSON for
 * clients that do not accept streams.
 */
const BOTH = `application/json, ${EVENT_STREAM}`;

const sentHeaders = /^(?:last-event-id|mcp-[a-z0-9-]+)$/;
const keptHeaders = ["content-type", "mcp-session-id", "allow"];
const exposed = { "access-control-expose-headers": "x-request-id, mcp-session-id, mcp-protocol-version" };

/** Converts an HTTP request to a Request of the Fetch API, without the body. */
export function webRequest({ method, headers, signal }: HttpRequest): Request {
  const taken = [...headers].filter(([name]) => sentHeaders.test(name));
  // The MCP library accepts a POST only with these headers. The client's content type need not be passed on, because the body
  // has already been checked and parsed.
  const kinds: [string, string][] =
    method === "POST"
      ? [
          ["accept", BOTH],
          ["content-type", "application/json"],
        ]
      : [["accept", headers.get("accept") ?? ""]];
  try {
    return new Request("http://localhost/mcp", { method, headers: [...taken, ...kinds], signal });
  } catch (cause) {
    throw new ServerError("invalid_value", "expected headers of printable characters", { cause });
  }
}

/**
 * Creates a POST request that the server itself sends to the library. `sessionId`: session of the request; null: the request
 * begins a session.
 */
export function ownRequest(sessionId: string | null): Request {
  const headers = new Headers({ accept: BOTH, "content-type": "application/json" });
  if (sessionId !== null) headers.set("mcp-session-id", sessionId);
  return new Request("http://localhost/mcp", { method: "POST", headers });
}

/** Returns whether the client accepts a stream. */
function wantsStream({ headers }: HttpRequest): boolean {
  return headers.get("accept")?.includes(EVENT_STREAM) ?? false;
}

/** Sends a response. Resolves when the complete response is sent or the client has disconnected. */
export async function sendResponse(exchange: Exchange, response: Response, readerStallMs: number): Promise<void> {
  const headers = replyHeaders(response);
  const { body, status } = response;
  if (body === null || !headers["content-type"]?.startsWith(EVENT_STREAM)) {
    exchange.send(status, headers, await response.text());
  } else if (wantsStream(exchange.request)) {
    await pump(exchange, headers, body, readerStallMs);
  } else {
    sendMessages(exchange, headers, await readAll(body, exchange.request.signal));
  }
}

function replyHeaders({ headers }: Response): ReplyHeaders {
  const kept: Record<string, string> = { ...exposed };
  for (const name of keptHeaders) {
    const value = headers.get(name);
    if (value !== null) kept[name] = value;
  }
  return kept;
}

async function pump(
  exchange: Exchange,
  headers: ReplyHeaders,
  body: ReadableStream<Uint8Array>,
  readerStallMs: number,
): Promise<void> {
  const sink = exchange.openEventStream(headers);
  // The status and headers are sent with the first piece. Clients wait for them, so a comment line is sent immediately.
  sink.write(": open\n\n");
  try {
    for await (const text of textOf(body, exchange.request.signal)) await writeTo(sink, text, readerStallMs);
  } finally {
    sink.end();
  }
}

async function writeTo(sink: StreamSink, text: string, readerStallMs: number): Promise<void> {
  if (!sink.write(text)) await drained(sink, readerStallMs);
}

/** Yields the pieces of a stream until it ends or the client disconnects. */
async function* textOf(body: ReadableStream<Uint8Array>, signal: AbortSignal): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const cancel = (): void => void reader.cancel().catch(() => {});
  signal.addEventListener("abort", cancel, { once: true });
  if (signal.aborted) cancel();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      yield decoder.decode(next.value, { stream: true });
    }
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

async function readAll(body: ReadableStream<Uint8Array>, signal: AbortSignal): Promise<string> {
  let all = "";
  for await (const text of textOf(body, signal)) all += text;
  return all;
}

/**
 * Sends the JSON-RPC responses of a stream as one JSON body. Notifications are dropped, because a JSON body cannot carry them.
 */
function sendMessages(exchange: Exchange, headers: ReplyHeaders, stream: string): void {
  const messages = [...stream.matchAll(/^data: (.+)$/gm)].map(([, data = ""]) => data);
  const answers = messages.filter((message) => isResponse(JSON.parse(message)));
  const json = { ...headers, "content-type": "application/json" };
  if (answers.length === 0) exchange.send(202, exposed, "");
  else exchange.send(200, json, answers.length === 1 ? (answers[0] ?? "") : `[${answers.join(",")}]`);
}
