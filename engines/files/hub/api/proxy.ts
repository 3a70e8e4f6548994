// Proxy: sends requests through an HTTP proxy, chosen by HTTPS_PROXY, HTTP_PROXY and NO_PROXY as in other download
// tools. Node's own fetch reads these variables only in newer versions. Used by hub-request.ts.
import { ServerError } from "../../../../runtime/errors.ts";
import type { Environment } from "../download/fetch-options.ts";

type Fetch = (url: URL, init: RequestInit) => Promise<Response>;

const defaultPorts: Readonly<Record<string, string>> = { "http:": "80", "https:": "443" };

/** Fetch functions, by the address of the proxy. They are reused, because each keeps its connections open. */
const proxied = new Map<string, Promise<Fetch>>();

/** Returns the function that sends requests for this URL: through a proxy, or directly. Throws config_invalid. */
export async function fetchFor(url: URL, environment: Environment): Promise<Fetch> {
  const proxy = proxyOf(url, environment);
  if (proxy === null) return fetch;
  const known = proxied.get(proxy.href);
  if (known !== undefined) return known;
  const opened = openProxy(proxy);
  proxied.set(proxy.href, opened);
  return opened;
}

/** Creates a fetch function for a proxy. The proxy library is loaded only here, so it is not loaded without a proxy. */
async function openProxy(proxy: URL): Promise<Fetch> {
  const { fetch: fetchThrough, ProxyAgent } = await import("../../../../runtime/web/undici.ts");
  const dispatcher = new ProxyAgent(proxy.href);
  // The cast is correct: Node's fetch is built from this library, so the interface is the same, but the library
  // declares its own types.
  return (url, init) => fetchThrough(url, { ...init, dispatcher } as object) as unknown as Promise<Response>;
}

/** Returns the proxy for a URL; null if there is none. Variables with lower-case names have precedence, as in other programs. */
export function proxyOf({ protocol, hostname, port }: URL, environment: Environment): URL | null {
  const read = (name: string) => environment[name.toLowerCase()] || environment[name] || "";
  const name = protocol === "https:" ? "HTTPS_PROXY" : "HTTP_PROXY";
  const given = read(name);
  if (given === "" || isExcepted(hostname, port || (defaultPorts[protocol] ?? ""), read("NO_PROXY"))) return null;
  const address = given.includes("://") ? given : `http://${given}`;
  if (URL.canParse(address) && /^https?:$/.test(new URL(address).protocol)) return new URL(address);
  // The error message does not contain the value, because it may contain a password.
  throw new ServerError("config_invalid", `${name} expects the address of an HTTP proxy, such as http://proxy:3128`);
}

/** Whether NO_PROXY lists a host: `*`, a host name (its subdomains included), or either with a port. */
function isExcepted(hostname: string, port: string, list: string): boolean {
  const host = hostname.toLowerCase().replace(/^\[|\]$/g, "");
  return list.split(/[\s,]+/).some((entry) => {
    const [, name = "", only = port] = /^\*?\.?\[?(.+?)\]?(?::(\d+))?$/.exec(entry.toLowerCase()) ?? [];
    // An IPv6 address may be written without brackets. Its last number is not a port.
    if (entry === "*" || entry.toLowerCase() === host) return true;
    return name !== "" && only === port && (host === name || host.endsWith(`.${name}`));
  });
}
