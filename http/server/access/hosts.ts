// Known hosts: protection against DNS rebinding, an attack in which a web page makes a browser talk to a server on the user's
// machine. Checks the host and the origin of every request to the MCP server, and of all other requests if `cors_origins` is
// set.
import { isIP } from "node:net";
import { hostname } from "node:os";
import { ServerError } from "../../../runtime/errors.ts";
import type { HttpRequest } from "../edge.ts";

/**
 * Known host names of a server. A request may use any IP address, but only known names, because an attacker can point a domain
 * name at any address.
 */
export class KnownHosts {
  readonly #names: ReadonlySet<string>;
  readonly #origins: ReadonlySet<string>;

  /** `boundTo`: the listening address; `others`: additional host names; `origins`: other web origins that may send requests. */
  constructor(boundTo: string, others: readonly string[], origins: readonly string[] | null) {
    this.#origins = new Set(origins);
    this.#names = new Set([boundTo, hostname(), ...others].map((name) => name.toLowerCase()));
  }

  /** Returns a `forbidden` error for an unknown host or origin; null if the request is allowed. */
  refusal({ headers }: Pick<HttpRequest, "headers">): ServerError | null {
    const host = headers.get("host") ?? "";
    const name = nameIn(`http://${host}`);
    if (name === null || !(this.#isKnown(name) || isIP(name) !== 0)) {
      return forbidden(`the host "${host.slice(0, 100)}" is unknown; add the host names of a proxy to allowed_hosts`);
    }
    const origin = headers.get("origin");
    if (origin === undefined || this.#origins.has(origin)) return null;
    const page = nameIn(origin);
    if (page !== null && (page === name || this.#isKnown(page))) return null;
    return forbidden(
      `pages of "${origin.slice(0, 100)}" may not use this server; cors_origins and allowed_hosts list the allowed ones`,
    );
  }

  #isKnown(name: string): boolean {
    return name === "localhost" || name.endsWith(".localhost") || isLoopback(name) || this.#names.has(name);
  }
}

/** Returns the host name or address in a URL, without brackets; null if the URL is invalid. */
function nameIn(url: string): string | null {
  return URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, "") || null : null;
}

function isLoopback(name: string): boolean {
  return name === "::1" || (isIP(name) === 4 && name.startsWith("127."));
}

function forbidden(message: string): ServerError {
  return new ServerError("forbidden", message);
}
