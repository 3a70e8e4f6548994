// Load balancing among the servers of a remote model.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { chooseUpstream } from "../../../../actors/remote-model/choose-upstream.ts";

const server = (name: string, outstanding = 0, hasRoom = true) => ({
  url: `http://${name}:8000`,
  outstanding,
  hasRoom,
});
const prompt = (seed: number, length = 300) => Int32Array.from({ length }, (_, i) => seed * 1000 + i);

describe("the server for a prompt", () => {
  it("is the same for the same beginning, and prompts are spread over all servers", () => {
    const servers = ["a", "b", "c", "d"].map((name) => server(name));
    const counts = new Map<string, number>();
    for (let seed = 0; seed < 400; seed++) {
      const chosen = chooseUpstream(servers, "prefix", prompt(seed))?.url ?? "";
      counts.set(chosen, (counts.get(chosen) ?? 0) + 1);
      const longer = Int32Array.from([...prompt(seed), 1, 2, 3]);
      assert.equal(chooseUpstream(servers, "prefix", longer)?.url, chosen);
    }
    for (const { url } of servers) assert.ok((counts.get(url) ?? 0) > 60, `${url}: ${counts.get(url)} of 400`);
  });

  it("changes only for the prompts of a server that is down", () => {
    const servers = ["a", "b", "c"].map((name) => server(name));
    for (let seed = 0; seed < 100; seed++) {
      const before = chooseUpstream(servers, "prefix", prompt(seed));
      const left = servers.map((one) => (one.url === "http://b:8000" ? { ...one, hasRoom: false } : one));
      const after = chooseUpstream(left, "prefix", prompt(seed));
      if (before?.url !== "http://b:8000") assert.equal(after?.url, before?.url);
    }
  });

  it("is another server if the first is loaded well above the mean", () => {
    const servers = ["a", "b", "c"].map((name) => server(name, 4));
    const first = chooseUpstream(servers, "prefix", prompt(1));
    const loaded = servers.map((one) => (one.url === first?.url ? { ...one, outstanding: 12 } : one));
    assert.notEqual(chooseUpstream(loaded, "prefix", prompt(1))?.url, first?.url);
  });

  it("is the least loaded with room under `least`; null if none has room", () => {
    const servers = [server("a", 3), server("b", 1, false), server("c", 2)];
    assert.equal(chooseUpstream(servers, "least", prompt(1))?.url, "http://c:8000");
    assert.equal(chooseUpstream([server("a", 1, false)], "prefix", prompt(1)), null);
  });
});
