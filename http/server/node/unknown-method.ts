// Unknown methods: requests whose method node's parser does not know. The parser fails at the method, so this module parses the
// headers from the packet that the error contains. The app then handles the request like any other.
import { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** Error of node's HTTP parser. */
export interface ParserError extends NodeJS.ErrnoException {
  /** Packet in which the parser failed. `bytesParsed`: number of bytes in it that were parsed before the failure. */
  readonly rawPacket?: Buffer;
  readonly bytesParsed?: number;
}

const requestLine = /^([A-Za-z][A-Za-z0-9_-]*) (\S+) HTTP\/1\.1$/;
const headerLine = /^([!#$%&'*+.^_`|~\w-]+):[ \t]*([\x20-\x7e\t]*)$/;

/**
 * Returns the request at the start of the packet, if the parser failed at its method. Returns null if the parser failed at a
 * different point, or if the packet does not contain all headers.
 */
export function requestOfUnknownMethod(error: ParserError, socket: Socket): IncomingMessage | null {
  const { code, rawPacket, bytesParsed = 0 } = error;
  if (code !== "HPE_INVALID_METHOD" || rawPacket === undefined) return null;
  const end = rawPacket.indexOf("\r\n\r\n");
  const [first = "", ...lines] = end < 0 ? [] : rawPacket.toString("latin1", 0, end).split("\r\n");
  const [, method = "", url = ""] = requestLine.exec(first) ?? [];
  // If more bytes were parsed than the method has, an earlier request precedes this one in the packet.
  if (method === "" || bytesParsed > method.length) return null;
  const request = new IncomingMessage(socket);
  request.method = method;
  request.url = url;
  for (const line of lines) {
    const [, name, value] = headerLine.exec(line) ?? [];
    if (name === undefined || value === undefined) return null;
    request.rawHeaders.push(name, value.trimEnd());
  }
  return request;
}

/** Creates a response on a connection that node's parser no longer handles. The connection closes after the response. */
export function lastResponse(request: IncomingMessage, socket: Socket): ServerResponse {
  const response = new ServerResponse(request);
  response.assignSocket(socket);
  response.once("finish", () => socket.end(() => socket.destroy()));
  return response;
}
