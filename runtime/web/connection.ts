// Connection of a guarded fetch: opens one request whose address is checked. The address that a host name resolves to is checked
// in the lookup of the connection, so the connection goes to the checked address.
import { type LookupAddress, lookup } from "node:dns";
import { type ClientRequest, type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { isIP, type LookupFunction } from "node:net";
import { isOutside } from "./addresses.ts";
import { maxHeaderBytes, maxHeaders, maxInformational, maxLookups, maxUrlLength, refused } from "./limits.ts";

/** The rules for allowed connections, and the resolver of host names. */
export interface ConnectionGuard {
  readonly isAllowed: (address: string) => boolean;
  /** Allowed ports; null = all ports. */
  readonly ports: readonly number[] | null;
  readonly resolve: (name: string) => Promise<readonly LookupAddress[]>;
}

/** Allows public addresses outside of the machine's networks, on all ports. */
export const publicGuard: ConnectionGuard = { isAllowed: isOutside, ports: null, resolve: resolveName };

export interface Hop {
  readonly url: URL;
  readonly method: "GET" | "POST";
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  readonly headersMs: number;
}

/** Parses a URL and checks everything that is known before its host name is resolved. Throws invalid_value. */
export function checkedUrl(text: string, base: URL | null, guard: ConnectionGuard): URL {
  if (text.length > maxUrlLength) {
    throw refused(`expected a URL of at most ${maxUrlLength} characters; got ${text.length}`);
  }
  const url = URL.canParse(text, base?.href) ? new URL(text, base?.href) : null;
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw refused("expected a URL of http or https");
  }
  if (url.username !== "" || url.password !== "") throw refused("expected a URL without a user name and password");
  const port = url.port === "" ? (url.protocol === "https:" ? 443 : 80) : Number(url.port);
  if (guard.ports !== null && !guard.ports.includes(port)) {
    throw refused(`expected a URL with one of the ports ${guard.ports.join(", ")}; got ${port}`);
  }
  // A host that is an IP address is checked here, because no lookup is made for it.
  const host = url.hostname.replace(/^\[|\]$/g, "");
  if (isIP(host) !== 0 && !guard.isAllowed(host)) throw notPublic(host);
  url.hash = "";
  return url;
}

/**
 * Sends the request of one hop (the first request or a redirect). Resolves when the headers of the response have arrived. The
 * signal also ends the response.
 */
export function opened(hop: Hop, guard: ConnectionGuard, signal: AbortSignal): Promise<IncomingMessage> {
  const { url, method, headers, body, headersMs } = hop;
  return new Promise((resolve, reject) => {
    const open = url.protocol === "https:" ? requestHttps : requestHttp;
    const options = { method, headers, signal, agent: false, maxHeaderSize: maxHeaderBytes } as const;
    const sent: ClientRequest = open(url, { ...options, lookup: checkedLookup(guard) });
    const timer = setTimeout(() => sent.destroy(refused(`no response came within ${headersMs} ms`)), headersMs);
    let informational = 0;
    sent.on("information", () => {
      if (++informational > maxInformational) {
        sent.destroy(refused(`expected at most ${maxInformational} informational responses; got more`));
      }
    });
    sent.on("response", (response) => {
      clearTimeout(timer);
      const count = response.rawHeaders.length / 2;
      if (count <= maxHeaders) resolve(response);
      else sent.destroy(refused(`expected at most ${maxHeaders} response headers; got ${count}`));
    });
    // Without this listener, the promise would never settle if the server switches protocols.
    sent.on("upgrade", (_response, socket) => {
      socket.destroy();
      reject(refused("expected a response; the server switched to another protocol"));
    });
    sent.on("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    sent.end(body ?? undefined);
  });
}

/** Resolves a host name, and refuses it if one of its addresses is not allowed. */
function checkedLookup({ resolve, isAllowed }: ConnectionGuard): LookupFunction {
  return (name, options, callback) => {
    resolve(name).then(
      (addresses) => {
        const [first] = addresses;
        const isSafe = addresses.every(({ address }) => isAllowed(address));
        if (!isSafe || first === undefined) callback(notPublic(name) as NodeJS.ErrnoException, "", 0);
        else if (options.all === true) callback(null, [...addresses]);
        else callback(null, first.address, first.family);
      },
      (error: NodeJS.ErrnoException) => callback(error, "", 0),
    );
  };
}

let lookups = 0;

/** Rejects if too many names are being looked up: a lookup cannot be cancelled, and those of the whole process share two threads. */
function resolveName(name: string): Promise<readonly LookupAddress[]> {
  return new Promise((resolve, reject) => {
    if (lookups >= maxLookups) {
      reject(
        refused(
          `expected at most ${maxLookups} names that are being looked up; the name server answers slowly; try again later`,
        ),
      );
      return;
    }
    lookups++;
    lookup(name, { all: true }, (error, addresses) => {
      lookups--;
      if (error === null) resolve(addresses);
      else reject(error);
    });
  });
}

function notPublic(host: string): Error {
  return refused(`the address of ${host} is not public`);
}
