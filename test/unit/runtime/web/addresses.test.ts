// Addresses that a guarded fetch may reach: private addresses in URLs in all their notations, names that resolve to them, and
// redirects to them.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { isOutside, isPublic } from "../../../../runtime/web/addresses.ts";
import { publicGuard } from "../../../../runtime/web/connection.ts";
import { GuardedFetcher } from "../../../../runtime/web/guarded-fetch.ts";
import {
  fetchText,
  guardOf,
  limits,
  type Names,
  never,
  privateAddress,
  publicAddress,
  startHttp,
  type TestServer,
} from "./rig.ts";

const names: Names = {
  localhost: ["127.0.0.1", "::1"],
  "app.localhost": ["127.0.0.1"],
  "loop.test": ["127.0.0.1"],
  "private.test": ["10.0.0.7"],
  "mixed.test": ["93.184.216.34", "10.0.0.7"],
  "mixed-v6.test": ["2606:4700::1111", "::1"],
  "v6.test": ["fd00::1"],
  "mapped.test": ["::ffff:127.0.0.1"],
  "nat64.test": ["64:ff9b::a00:1"],
  "sixtofour.test": ["2002:7f00:1::"],
  "teredo.test": ["2001:0:53aa:64c::1"],
  "zone.test": ["fe80::1%eth0"],
  "metadata.google.internal": ["169.254.169.254"],
  "metadata.azure.internal": ["168.63.129.16"],
  "cgnat.test": ["100.100.100.200"],
  "broadcast.test": ["255.255.255.255"],
  "multicast.test": ["239.1.1.1"],
  "benchmark.test": ["198.18.0.1"],
  "public.test": ["93.184.216.34"],
};

/** Private addresses as URL hosts, in the notations that URL parsers and resolvers accept. */
const hosts = [
  "127.0.0.1",
  "127.1",
  "127.0.1",
  "2130706433",
  "0x7f000001",
  "0x7f.0.0.1",
  "0177.0.0.1",
  "0177.0x0.0.01",
  "017700000001",
  "127.0.0.1.",
  "1\u20e327.0.0.1",
  "\u2460\u2461\u2466.0.0.1",
  "127\u30020\u30020\u30021",
  "%31%32%37.0.0.1",
  "0",
  "0.0.0.0",
  "10.255.255.255",
  "172.31.0.1",
  "192.168.0.1",
  "169.254.169.254",
  "2852039166",
  "0xA9FEA9FE",
  "100.64.0.1",
  "192.0.0.192",
  "168.63.129.16",
  "198.19.255.255",
  "224.0.0.1",
  "255.255.255.255",
  "[::1]",
  "[::]",
  "[0:0:0:0:0:0:0:1]",
  "[::ffff:127.0.0.1]",
  "[::ffff:7f00:1]",
  "[::127.0.0.1]",
  "[::ffff:169.254.169.254]",
  "[64:ff9b::127.0.0.1]",
  "[64:ff9b:1::a00:1]",
  "[2002:7f00:0001::]",
  "[2001:0:53aa:64c::1]",
  "[fe80::1]",
  "[fe80::1%25eth0]",
  "[fc00::1]",
  "[fd00:ec2::254]",
  "[ff02::1]",
  "[100::1]",
  "[2001:db8::1]",
  "[3fff::1]",
  "localhost",
  "LOCALHOST",
  "localhost.",
  "\uff4cocalhost",
  "app.localhost",
  "loop.test",
  "LOOP.Test.",
  "private.test",
  "mixed.test",
  "mixed-v6.test",
  "v6.test",
  "mapped.test",
  "nat64.test",
  "sixtofour.test",
  "teredo.test",
  "zone.test",
  "metadata.google.internal",
  "metadata.azure.internal",
  "cgnat.test",
  "broadcast.test",
  "multicast.test",
  "benchmark.test",
];

const urls = [
  "file:///etc/passwd",
  "ftp://public.test/",
  "gopher://public.test:6379/_INFO",
  "data:text/html,x",
  "javascript:alert(1)",
  "blob:http://public.test/1",
  "ws://public.test/",
  "dict://public.test/",
  "http://user@public.test/",
  "http://user:secret@public.test/",
  "http://public.test@127.0.0.1/",
  "http://127.0.0.1#@public.test/",
  "http://public.test:0x50/",
  "http:///",
  "//public.test/",
  "/relative",
  "",
  "http://exa mple.test/",
  "http://[::1/",
  `http://public.test/${"a".repeat(9000)}`,
];

describe("a URL with a private address", () => {
  let server: TestServer;
  before(async () => {
    server = await startHttp((_request, response) => response.end("secret"));
  });
  after(() => server.stop());

  const fetcher = new GuardedFetcher(guardOf(names));
  const fetch = (url: string) => fetcher.fetch({ url, limits, checkHead: () => {} }, never);

  for (const host of hosts) {
    it(`is refused: ${host}`, async () => {
      for (const url of [`http://${host}:${server.port}/`, `https://${host}/`]) {
        await assert.rejects(
          fetch(url),
          { code: "invalid_value", message: /is not public|expected a URL of http/ },
          url,
        );
      }
      assert.equal(server.hits, 0);
    });
  }

  for (const url of urls) {
    it(`is refused: ${url.slice(0, 60)}`, async () => {
      await assert.rejects(fetch(url), { code: "invalid_value", message: /expected a URL|is not public/ });
    });
  }

  it("would be fetched if the rule allowed it", async () => {
    for (const host of ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "127.0.0.1.", "loop.test"]) {
      assert.equal(await fetchText(`http://${host}:${server.port}/`, names), "secret", host);
    }
  });

  it("is refused by the rule of production, by the system's names", async () => {
    const before = server.hits;
    const real = new GuardedFetcher(publicGuard);
    const url = `http://localhost:${server.port}/`;
    await assert.rejects(real.fetch({ url, limits, checkHead: () => {} }, never), /is not public/);
    assert.equal(server.hits, before);
  });

  it("is refused with another port, if ports are limited", async () => {
    const limited = new GuardedFetcher({ ...guardOf(names), ports: [80, 443] });
    const url = "http://public.test:25/";
    await assert.rejects(limited.fetch({ url, limits, checkHead: () => {} }, never), /ports 80, 443; got 25/);
  });
});

describe("addresses", () => {
  it("are public if they are global", () => {
    for (const address of ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700:4700::1111"]) {
      assert.equal(isPublic(address), true, address);
    }
    for (const address of ["", "x", "::ffff:1.1.1.1", "1.1.1"]) assert.equal(isPublic(address), false, address);
  });

  it("of this machine and its networks are not outside, even if they are public", () => {
    const own = [
      { address: "198.41.0.4", cidr: "198.41.0.4/24" },
      { address: "2606:4700::5", cidr: "2606:4700::5/64" },
    ];
    for (const address of ["198.41.0.4", "198.41.0.77", "2606:4700::5", "2606:4700::abcd"]) {
      assert.equal(isOutside(address, own), false, address);
    }
    for (const address of ["198.41.1.4", "2606:4700:0:1::5"]) assert.equal(isOutside(address, own), true, address);
  });
});

describe("a redirect", () => {
  let inner: TestServer;
  let outer: TestServer;
  let location = "";
  before(async () => {
    inner = await startHttp((_request, response) => response.end("secret"), privateAddress);
    outer = await startHttp((request, response) => {
      if (request.url === "/page") response.end("page");
      else response.writeHead(302, { location }).end();
    });
  });
  after(async () => {
    await inner.stop();
    await outer.stop();
  });

  const here: Names = { "here.test": [publicAddress], "inner.test": [privateAddress], localhost: [privateAddress] };
  const refused: Readonly<Record<string, () => string>> = {
    "to a private address": () => inner.url,
    "to a decimal address": () => `http://2130706434:${inner.port}/`,
    "to a name with a private address": () => `http://inner.test:${inner.port}/`,
    "to localhost": () => `http://localhost:${inner.port}/`,
    "to an IPv6 address": () => `http://[::ffff:127.0.0.2]:${inner.port}/`,
    "to a metadata service": () => "http://169.254.169.254/latest/meta-data/",
    "without a scheme, to another host": () => `//inner.test:${inner.port}/`,
    "to a file": () => "file:///etc/passwd",
    "to data": () => "data:text/html,x",
    "with credentials": () => `http://user:secret@here.test:${outer.port}/page`,
    "to garbage": () => "http://[",
    "to itself": () => "/loop",
  };
  for (const [name, target] of Object.entries(refused)) {
    it(`is refused ${name}`, async () => {
      location = target();
      const url = `http://here.test:${outer.port}/`;
      await assert.rejects(fetchText(url, here), { code: "invalid_value" });
      assert.equal(inner.hits, 0);
    });
  }

  it("is followed to an allowed address, also relative and without a scheme", async () => {
    for (const target of ["/page", "page", `//here.test:${outer.port}/page`, `http://127.0.0.1:${outer.port}/page`]) {
      location = target;
      assert.equal(await fetchText(`http://here.test:${outer.port}/`, here), "page", target);
    }
  });

  it("is not followed when its name resolves to a private address the second time", async () => {
    const rebound: Names = { "rebind.test": [[publicAddress], [privateAddress]] };
    location = `http://rebind.test:${inner.port}/`;
    await assert.rejects(fetchText(`http://rebind.test:${outer.port}/`, rebound), /is not public/);
    assert.equal(inner.hits, 0);
  });

  it("connects to the address that was checked, even if the name has another one by then", async () => {
    const rebound: Names = { "rebind.test": [[publicAddress], [privateAddress]] };
    assert.equal(await fetchText(`http://rebind.test:${outer.port}/page`, rebound), "page");
    assert.equal(inner.hits, 0);
  });
});
