import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { TrustedProxies } from "../../../../http/server/access/trusted-proxies.ts";

const inNetwork = ["10.0.0.0/8", "fd00::/8", "127.0.0.1"];

function addressOf(peer: string, forwarded: string | null, ranges: readonly string[] = inNetwork): string {
  const headers = new Map(forwarded === null ? [] : [["x-forwarded-for", forwarded]]);
  return new TrustedProxies(ranges, { warn: () => {} }).addressOf(peer, headers);
}

describe("trusted proxies", () => {
  it("name the client in front of them", () => {
    assert.equal(addressOf("127.0.0.1", "192.0.2.7"), "192.0.2.7");
    assert.equal(addressOf("10.1.2.3", "192.0.2.7, 10.9.9.9"), "192.0.2.7", "two proxies");
    assert.equal(addressOf("fd00::1", "2001:db8::7"), "2001:db8::7");
    assert.equal(addressOf("10.1.2.3", "10.4.4.4, 10.9.9.9"), "10.4.4.4", "a client in the network of the proxies");
  });

  it("believe nothing that the client itself may have written", () => {
    assert.equal(addressOf("10.1.2.3", "203.0.113.1, 192.0.2.7"), "192.0.2.7");
    assert.equal(addressOf("10.1.2.3", "10.4.4.4, 192.0.2.7, 10.9.9.9"), "192.0.2.7");
    assert.equal(addressOf("192.0.2.7", "203.0.113.1"), "192.0.2.7", "a direct connection");
    assert.equal(addressOf("127.0.0.1", "192.0.2.7", []), "127.0.0.1", "no proxy is trusted");
  });

  it("match IPv4-mapped IPv6 addresses, in the form that each edge writes", () => {
    for (const peer of ["::ffff:10.1.2.3", "0000:0000:0000:0000:0000:ffff:0a01:0203"]) {
      assert.equal(addressOf(peer, "192.0.2.7"), "192.0.2.7", peer);
    }
  });

  it("read entries with ports and brackets, and stop at an entry without an address", () => {
    assert.equal(addressOf("10.1.2.3", "192.0.2.7:4711"), "192.0.2.7");
    assert.equal(addressOf("10.1.2.3", "[2001:db8::7]:4711"), "2001:db8::7");
    assert.equal(addressOf("10.1.2.3", "[2001:db8::7]"), "2001:db8::7");
    assert.equal(addressOf("10.1.2.3", " 192.0.2.7 ,  10.9.9.9 "), "192.0.2.7");
    assert.equal(addressOf("10.1.2.3", "192.0.2.7, unknown, 10.9.9.9"), "10.9.9.9");
    for (const nothing of ["", ",", "unknown", "999.1.1.1", null])
      assert.equal(addressOf("10.1.2.3", nothing), "10.1.2.3");
  });

  it("report the first untrusted peer that forwards addresses, once", () => {
    const ignored: unknown[] = [];
    const proxies = new TrustedProxies(["10.0.0.0/8"], { warn: (fields) => ignored.push(fields) });
    const forwarding = new Map([["x-forwarded-for", "192.0.2.7"]]);
    proxies.addressOf("172.16.0.1", new Map());
    proxies.addressOf("10.0.0.1", forwarding);
    assert.deepEqual(ignored, []);
    for (const peer of ["", "172.16.0.1", "172.16.0.2"]) proxies.addressOf(peer, forwarding);
    assert.deepEqual(ignored, [{ peer: "172.16.0.1" }]);
  });
});
