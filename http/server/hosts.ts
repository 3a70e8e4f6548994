// Known hosts: the check against web pages that make a browser talk to a server on its own machine (DNS rebinding). It checks
// the host that a request names and the page that sends it: for every request to the MCP server, and for all others where
// `cors_origins` is set.
import { isIP } from "node:net";
import { hostname } from "node:os";
import { ServerError } from "../../runtime/errors.ts";
import type { HttpRequest } from "./edge.ts";

/** The hosts a server goes by. A page can give its own name any address, so a name must be known and an address need not. */
export class KnownHosts {
  readonly #names: ReadonlySet<string>;
  readonly #origins: ReadonlySet<string>;

  /** `boundTo` is the address the server listens on; pages of `origins` may send requests besides its own. */
  constructor(boundTo: string, others: readonly string[], origins: readonly string[] | null) {
    this.#origins = new Set(origins);
    this.#names = new Set([boundTo, hostname(), ...others].map((name) => name.toLowerCase()));
  }

  /** `forbidden` for a name that is not this server's, and for a page that may not use it; null for all else. */
  refusal({ headers }: Pick<HttpRequest, "headers">): ServerError | null {
    const host = headers.get("host") ?? "";
    const name = nameIn(`http://${host}`);
    if (name === null || !(this.#isKnown(name) || isIP(name) !== 0)) {
      return forbidden(`the host "${host.slice(0, 100)}" is not known here; a proxy's names go into allowed_hosts`);
    }
    const origin = headers.get("origin");
    if (origin === undefined || this.#origins.has(origin)) return null;
    const page = nameIn(origin);
    if (page !== null && (page === name || this.#isKnown(page))) return null;
    return forbidden(
      `pages of "${origin.slice(0, 100)}" may not use this server; cors_origins and allowed_hosts name those that may`,
    );
  }

  #isKnown(name: string): boolean {
    return name === "localhost" || name.endsWith(".localhost") || isLoopback(name) || this.#names.has(name);
  }
}

/** The host name or address in a URL, without brackets. */
function nameIn(url: string): string | null {
  return URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, "") || null : null;
}

function isLoopback(name: string): boolean {
  return name === "::1" || (isIP(name) === 4 && name.startsWith("127."));
}

function forbidden(message: string): ServerError {
  return new ServerError("forbidden", message);
}
