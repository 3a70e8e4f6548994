// Framing checks: the ends of a request's headers and body must be unambiguous. Otherwise, a proxy may split the same bytes
// into different requests (request smuggling). Both HTTP front ends run these checks first.
import { ServerError } from "../../runtime/errors.ts";
import type { HttpRequest } from "./edge.ts";

/** Maximum bytes of the request line and headers. */
export const MAX_HEADER_BYTES = 16 * 1024;

const methodToken = /^[A-Za-z][A-Za-z0-9_-]*$/;
const digits = /^[0-9]+$/;

/** Returns an error if the end of a request is ambiguous, else null. The caller must close the connection after an error. */
export function framingFault({ method, headers }: Pick<HttpRequest, "method" | "headers">): ServerError | null {
  // Body bytes that are parsed as a request by mistake rarely start with a valid method.
  if (!methodToken.test(method)) return fault("a method of letters", method);
  const host = headers.get("host");
  if (host?.includes(",")) return fault("one host", host);
  const length = headers.get("content-length");
  const coding = headers.get("transfer-encoding");
  if (coding !== undefined) {
    if (coding !== "chunked") return fault('the transfer-encoding "chunked", or none', coding);
    if (length !== undefined) return fault("either a transfer-encoding or a content-length", "both");
  }
  if (length !== undefined && !digits.test(length)) return fault("one content-length of digits", length);
  return null;
}

export function headersTooLarge(): ServerError {
  const message = `expected a request line and headers of at most ${MAX_HEADER_BYTES} bytes together, got more`;
  return new ServerError("headers_too_large", message);
}

function fault(expected: string, got: string): ServerError {
  const message = `expected ${expected}, got ${JSON.stringify(got.slice(0, 100))}; the connection is closed`;
  return new ServerError("invalid_request", message);
}
