// API keys: if the server has keys, a request must contain one of them, except on open routes such as /health. Only digests are
// stored, and they are compared in constant time, so that neither memory nor response times reveal a key.
import { createHash, timingSafeEqual } from "node:crypto";
import { ServerError } from "../../../runtime/errors.ts";
import { keyOf } from "../client.ts";
import type { HttpRequest } from "../edge.ts";

export class ApiKeys {
  #digests: readonly Buffer[] = [];

  constructor(keys: readonly string[]) {
    this.replace(keys);
  }

  /** Replaces all keys. Requests in progress continue. */
  replace(keys: readonly string[]): void {
    this.#digests = keys.map(digestOf);
  }

  /** Returns the error for a request without a valid key; null if the key is valid. */
  refusal({ headers }: Pick<HttpRequest, "headers">): ServerError | null {
    const key = keyOf(headers);
    if (key === "") {
      const message = "expected an API key in the header authorization (Bearer KEY) or x-api-key; got none";
      return new ServerError("invalid_api_key", message);
    }
    const given = digestOf(key);
    // All keys are compared, so that the duration does not depend on which key matches.
    const equal = this.#digests.filter((digest) => timingSafeEqual(digest, given));
    if (equal.length > 0) return null;
    return new ServerError("invalid_api_key", "the API key is not one of this server's keys; ask its operator for one");
  }
}

/**
 * Whether a request asks for OAuth metadata (RFC 8414, RFC 9728). Clients that got 401 send it and understand only 404, so it needs no key
 * where no route serves its path.
 */
export function asksForMetadata({ method, path }: Pick<HttpRequest, "method" | "path">): boolean {
  return (method === "GET" || method === "HEAD") && path.startsWith("/.well-known/");
}

function digestOf(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}
