import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { after, describe, it } from "node:test";
import { proxyOf } from "../../../../engines/files/hub/api/proxy.ts";
import { limits, modelBytes, useHub } from "./hub-rig.ts";

interface TestProxy {
  readonly port: number;
  /** Targets of the opened tunnels, as host and port. */
  readonly targets: string[];
  readonly authorizations: (string | undefined)[];
  /** If set, tunnels are refused with this status. */
  refusal: number | null;
  stop(): void;
}

/** Starts a proxy that opens tunnels (CONNECT), as company proxies do. */
async function startProxy(): Promise<TestProxy> {
  const sockets = new Set<Socket>();
  const server = createServer((_, response) => response.writeHead(405).end());
  const proxy: Omit<TestProxy, "port" | "stop"> = { targets: [], authorizations: [], refusal: null };
  server.on("connection", (socket: Socket) => sockets.add(socket));
  server.on("connect", (request, socket: Socket) => {
    socket.on("error", () => {});
    proxy.targets.push(request.url ?? "");
    proxy.authorizations.push(request.headers["proxy-authorization"]);
    if (proxy.refusal !== null) return void socket.end(`HTTP/1.1 ${proxy.refusal} Refused\r\n\r\n`);
    const { hostname, port } = new URL(`http://${request.url}`);
    const target = connect(Number(port), hostname, () => {
      socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
      target.pipe(socket).pipe(target);
    });
    target.on("error", () => socket.destroy());
    sockets.add(target);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const stop = () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  return Object.assign(proxy, { port: (server.address() as AddressInfo).port, stop });
}

describe("a download through a proxy", async () => {
  const rig = await useHub();
  const proxy = await startProxy();
  after(() => proxy.stop());
  const address = `127.0.0.1:${proxy.port}`;

  it("opens a tunnel to the hub and to the server of files, with the proxy's password", async () => {
    rig.put({ "tiny-Q8_0.gguf": modelBytes() });
    const environment = { ...rig.environment, HTTP_PROXY: `http://me:hush@${address}` };
    await rig.assertFetched(modelBytes(), undefined, { environment });
    const hub = new URL(rig.hub.url).host;
    assert.ok(proxy.targets.includes(hub));
    assert.equal(new Set(proxy.targets).size, 2);
    assert.equal(proxy.authorizations[0], `Basic ${Buffer.from("me:hush").toString("base64")}`);
  });

  it("bypasses the proxy for hosts in NO_PROXY", async () => {
    rig.put({ "tiny-Q8_0.gguf": modelBytes() });
    proxy.targets.length = 0;
    const environment = { ...rig.environment, http_proxy: address, no_proxy: "localhost, 127.0.0.1" };
    await rig.assertFetched(modelBytes(), undefined, { environment });
    assert.deepEqual(proxy.targets, []);
  });

  it("names the proxy if it cannot be reached or refuses, and never its password", async () => {
    rig.put({ "tiny-Q8_0.gguf": modelBytes() });
    const assertFails = (proxyAddress: string, message: RegExp) => {
      const environment = { ...rig.environment, HTTP_PROXY: proxyAddress };
      return assert.rejects(
        rig.resolve(undefined, { environment, limits: { ...limits, attempts: 1 } }),
        (error: Error) => {
          assert.match(error.message, message);
          return !error.message.includes("hush");
        },
      );
    };
    proxy.refusal = 407;
    await assertFails(`http://me:hush@${address}`, /through the proxy failed \(.*407/);
    await assertFails("http://me:hush@127.0.0.1:9", /through the proxy failed \(ECONNREFUSED\)/);
    await assertFails("socks5://me:hush@127.0.0.1:9", /HTTP_PROXY expects the address of an HTTP proxy/);
  });
});

describe("the proxy of a URL", () => {
  const hrefOf = (url: string, environment: Record<string, string>) => proxyOf(new URL(url), environment)?.href ?? null;

  it("depends on the protocol; lower case comes first, and the scheme may be absent", () => {
    const environment = { HTTPS_PROXY: "http://one:1", HTTP_PROXY: "two:2", https_proxy: "three:3" };
    assert.equal(hrefOf("https://hub.example/", environment), "http://three:3/");
    assert.equal(hrefOf("http://hub.example/", environment), "http://two:2/");
    assert.equal(hrefOf("https://hub.example/", { HTTP_PROXY: "http://two:2" }), null);
    assert.equal(hrefOf("https://hub.example/", { HTTPS_PROXY: "" }), null);
  });

  it("is none for the names, subdomains and ports in NO_PROXY", () => {
    const isDirect = (url: string, list: string) => hrefOf(url, { HTTPS_PROXY: "p:1", NO_PROXY: list }) === null;
    for (const list of ["*", "hub.example", ".hub.example", "*.hub.example", "a, HUB.example:443", "example"]) {
      assert.ok(isDirect("https://cdn.hub.example/", list), list);
    }
    for (const list of ["", "ub.example", "hub.example:8443", "other.example", "hub.example.org"]) {
      assert.ok(!isDirect("https://cdn.hub.example/", list), list);
    }
    assert.ok(isDirect("https://[::1]:8443/", "[::1]:8443") && !isDirect("https://[::1]:8443/", "[::2]"));
    assert.ok(isDirect("https://[::1]:8443/", "127.0.0.1,::1") && !isDirect("https://[::1]:8443/", "::2"));
  });
});
