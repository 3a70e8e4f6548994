// Guarded fetch rig: servers on 127.0.0.1 and 127.0.0.2, and host names that a table resolves. The tests' address rule allows
// 127.0.0.1, so it stands for a public address; 127.0.0.2 stands for a private one.
import type { LookupAddress } from "node:dns";
import { createServer, type RequestListener, type Server } from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import { isOutside } from "../../../../runtime/web/addresses.ts";
import type { ConnectionGuard } from "../../../../runtime/web/connection.ts";
import { GuardedFetcher } from "../../../../runtime/web/guarded-fetch.ts";
import type { FetchLimits } from "../../../../runtime/web/limits.ts";

export const publicAddress = "127.0.0.1";
export const privateAddress = "127.0.0.2";
export const never: AbortSignal = new AbortController().signal;

export const limits: FetchLimits = {
  headersMs: 400,
  totalMs: 3000,
  redirects: 5,
  sentBytes: 64 * 1024,
  bodyBytes: 256 * 1024,
  minBytesPerSecond: 0,
};

/** IP addresses by host name. For a list of lists, each DNS query gets the next list; the last list repeats. */
export type Names = Readonly<Record<string, readonly string[] | readonly (readonly string[])[]>>;

/** Returns a guard that resolves host names with the table. Names that are not in it do not exist. */
export function guardOf(names: Names, isAllowed: (address: string) => boolean = isOutside): ConnectionGuard {
  const asked = new Map<string, number>();
  const resolve = async (name: string): Promise<readonly LookupAddress[]> => {
    const known = names[name.toLowerCase().replace(/\.$/, "")] ?? [];
    const count = asked.get(name) ?? 0;
    asked.set(name, count + 1);
    const answers = (Array.isArray(known[0]) ? (known[Math.min(count, known.length - 1)] ?? []) : known) as string[];
    if (answers.length === 0) throw new Error(`getaddrinfo ENOTFOUND ${name}`);
    return answers.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
  };
  return { isAllowed, ports: null, resolve };
}

/** Fetches a URL with the tests' address rule. Returns the body as text. */
export async function fetchText(url: string, names: Names = {}, changes: Partial<FetchLimits> = {}): Promise<string> {
  const fetcher = new GuardedFetcher(guardOf(names, (address) => isOutside(address) || address === publicAddress));
  const { body } = await fetcher.fetch({ url, limits: { ...limits, ...changes }, checkHead: () => {} }, never);
  return new TextDecoder().decode(body);
}

export interface TestServer {
  readonly port: number;
  readonly url: string;
  /** Number of requests (HTTP server) or connections (TCP server) so far. */
  hits: number;
  stop(): Promise<void>;
}

export async function startHttp(listener: RequestListener, address = publicAddress): Promise<TestServer> {
  const server = createServer((request, response) => {
    started.hits++;
    listener(request, response);
  });
  const started = await listening(server, address);
  return started;
}

/** Starts a TCP server. `onSocket` may write any bytes, including invalid HTTP. */
export async function startRaw(onSocket: (socket: Socket) => void): Promise<TestServer> {
  const server = createTcpServer((socket) => {
    started.hits++;
    socket.on("error", () => {});
    onSocket(socket);
  });
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => sockets.add(socket));
  const started = await listening(server as Server, publicAddress);
  return Object.assign(started, {
    async stop() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  });
}

async function listening(server: Server, address: string): Promise<TestServer> {
  await new Promise<void>((resolve) => server.listen(0, address, resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://${address}:${port}`,
    hits: 0,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
