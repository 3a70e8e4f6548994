// Version header of the messages protocol, which its clients send with every request. On routes that several protocols share,
// the header selects the response format of the messages protocol.
import type { HttpRequest } from "../server/edge.ts";

/** Returns whether the request comes from a client of the messages protocol. */
export function hasVersionHeader({ headers }: Pick<HttpRequest, "headers">): boolean {
  return headers.has("anthropic-version") || headers.has("alt-version");
}
