// Guarded fetch of file URLs: only http and https, only public addresses, bounded in size, time and redirects. The address that
// a host name resolves to is checked in the lookup of the connection, so the connection goes to the checked address.
import { type LookupAddress, lookup as resolveName } from "node:dns";
import { type ClientRequest, type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { BlockList, isIP, type LookupFunction } from "node:net";
import { ServerError } from "../../../runtime/errors.ts";
import { fileLimits } from "../../api/agent/files.ts";
import { checkedFileName } from "../../files/file-name.ts";

const timeoutMs = 30_000;
const maxRedirects = 3;
const param = "file_url";

/** Addresses that are not public (RFC 6890 and others), among them those of cloud metadata services. */
const blocked = new BlockList();
for (const [net, prefix] of [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.88.99.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 3],
] as const) {
  blocked.addSubnet(net, prefix, "ipv4");
}
/** Public IPv6 addresses are global unicast (2000::/3), except ranges that embed an IPv4 address or are for documentation. */
const globalV6 = new BlockList();
globalV6.addSubnet("2000::", 3, "ipv6");
for (const [net, prefix] of [
  ["2001::", 23],
  ["2001:db8::", 32],
  ["2002::", 16],
  ["3fff::", 20],
] as const) {
  blocked.addSubnet(net, prefix, "ipv6");
}

/** Returns whether connections to the address are allowed. */
export function isPublic(address: string): boolean {
  const family = isIP(address);
  if (family === 4) return !blocked.check(address, "ipv4");
  return family === 6 && globalV6.check(address, "ipv6") && !blocked.check(address, "ipv6");
}

/**
 * Fetches a file. Throws invalid_value if the URL is not allowed, the server does not respond with the file, or the file is too
 * large; cancelled after the signal is aborted.
 */
export async function fetchFile(
  url: string,
  signal: AbortSignal,
): Promise<{ readonly name: string; readonly content: Uint8Array }> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
  try {
    let at = checkedUrl(url);
    for (let redirects = 0; ; redirects++) {
      const response = await opened(at, limit);
      const { statusCode = 0, headers } = response;
      if (statusCode >= 300 && statusCode < 400 && headers.location !== undefined) {
        response.destroy();
        if (redirects === maxRedirects) throw refused(`expected at most ${maxRedirects} redirects, got more`);
        at = checkedUrl(new URL(headers.location, at).href);
        continue;
      }
      if (statusCode !== 200) {
        response.destroy();
        throw refused(`expected status 200 from ${at.host}, got ${statusCode}`);
      }
      return { name: nameIn(at), content: await contentOf(response) };
    }
  } catch (error) {
    if (error instanceof ServerError) throw error;
    if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled while its files were fetched");
    const isLate = limit.aborted;
    throw refused(isLate ? `no whole file came within ${timeoutMs} ms` : `it cannot be fetched: ${reasonOf(error)}`);
  }
}

function checkedUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw refused("expected a URL of http or https");
  }
  if (url.username !== "" || url.password !== "") throw refused("expected a URL without a user name and password");
  const host = url.hostname.replace(/^\[|\]$/g, "");
  // A host that is an IP address is checked here, because no lookup is made for it.
  if (isIP(host) !== 0 && !isPublic(host)) throw notPublic(host);
  return url;
}

function opened(url: URL, signal: AbortSignal): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const open = url.protocol === "https:" ? requestHttps : requestHttp;
    const headers = { accept: "*/*", "accept-encoding": "identity", "user-agent": "troupe" };
    const sent: ClientRequest = open(url, { lookup: publicLookup, signal, headers, agent: false }, resolve);
    sent.on("error", reject);
    sent.end();
  });
}

/** Resolves a name and refuses it if one of its addresses is not public. */
const publicLookup: LookupFunction = (name, options, callback) => {
  resolveName(name, { ...options, all: true }, (error, addresses: LookupAddress[]) => {
    if (error !== null) {
      callback(error, "", 0);
      return;
    }
    const wrong = addresses.find(({ address }) => !isPublic(address));
    const [first] = addresses;
    if (wrong !== undefined || first === undefined) callback(notPublic(name) as NodeJS.ErrnoException, "", 0);
    else if (options.all === true) callback(null, addresses);
    else callback(null, first.address, first.family);
  });
};

async function contentOf(response: IncomingMessage): Promise<Uint8Array> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > fileLimits.maxFileBytes) {
      response.destroy();
      throw refused(`expected a file of at most ${fileLimits.maxFileBytes} bytes, got more`);
    }
    chunks.push(chunk);
  }
  return new Uint8Array(Buffer.concat(chunks));
}

/**
 * Returns the last part of the path as a file name. Characters that file names cannot have are replaced. "download": files
 * cannot have the name.
 */
export function nameIn({ pathname }: URL): string {
  const last = pathname.split("/").at(-1) ?? "";
  let name = last;
  try {
    name = decodeURIComponent(last);
  } catch {
    // The path is not encoded as UTF-8; its encoded form is the name.
  }
  const plain = name
    .replaceAll(/[^\p{L}\p{N}._ -]/gu, "_")
    .slice(0, 100)
    .trim();
  try {
    return checkedFileName(plain, false);
  } catch {
    return "download";
  }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function notPublic(host: string): ServerError {
  return refused(`the address of ${host} is not public`);
}

function refused(message: string): ServerError {
  return new ServerError("invalid_value", `file_url: ${message}`, { param });
}
