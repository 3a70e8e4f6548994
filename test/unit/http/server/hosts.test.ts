import assert from "node:assert/strict";
import { hostname } from "node:os";
import { describe, it } from "node:test";
import { KnownHosts } from "../../../../http/server/access/hosts.ts";

describe("the known hosts of a server", () => {
  const hosts = new KnownHosts("mcp.lan", ["Chat.Example"], ["https://page.example"]);
  const isTaken = (host: string | null, origin?: string): boolean => {
    const headers = new Map([
      ...(host === null ? [] : [["host", host] as const]),
      ...(origin ? [["origin", origin] as const] : []),
    ]);
    const refusal = hosts.refusal({ headers });
    if (refusal !== null) assert.equal(refusal.code, "forbidden");
    return refusal === null;
  };

  it("are this machine's names, any IP address, the bound name and the allowed names", () => {
    const known = [
      "localhost:1",
      "a.localhost",
      "127.0.0.1:80",
      "[::1]:80",
      "192.168.1.7",
      "mcp.lan",
      "chat.example:443",
    ];
    for (const host of [...known, hostname()]) assert.ok(isTaken(host), host);
    for (const host of [null, "", "evil.example", "localhost.evil.example", "a b", "127.0.0.1.evil.example"]) {
      assert.ok(!isTaken(host), String(host));
    }
  });

  it("allow pages of the server, of this machine and of allowed names", () => {
    for (const origin of [
      "http://192.168.1.7:3000",
      "http://localhost:6274",
      "http://[::1]",
      "https://chat.example",
      "https://page.example",
    ]) {
      assert.ok(isTaken("192.168.1.7", origin), origin);
    }
    for (const origin of [
      "null",
      "http://page.example",
      "https://page.example:8443",
      "http://192.168.1.8",
      "http://evil.example",
      "http://localhost.evil.example",
    ]) {
      assert.ok(!isTaken("192.168.1.7", origin), origin);
    }
  });
});
