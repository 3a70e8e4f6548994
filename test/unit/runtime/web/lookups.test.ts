// Lookups of host names: their number is limited, because a lookup that nobody waits for any more cannot be cancelled.
import assert from "node:assert/strict";
import dns from "node:dns";
import { syncBuiltinESMExports } from "node:module";
import { after, before, describe, it, mock } from "node:test";
import { publicGuard } from "../../../../runtime/web/connection.ts";
import { maxLookups } from "../../../../runtime/web/limits.ts";

type Done = (error: Error | null, addresses: dns.LookupAddress[]) => void;

describe("lookups of host names", () => {
  const waiting: Done[] = [];
  before(() => {
    mock.method(dns, "lookup", (_name: string, _options: object, done: Done) => void waiting.push(done));
    syncBuiltinESMExports();
  });
  after(() => {
    mock.restoreAll();
    syncBuiltinESMExports();
  });

  it("are refused while too many wait for a name server, and work again when one has answered", async () => {
    const lookups = Array.from({ length: maxLookups }, (_, i) => publicGuard.resolve(`host-${i}.example`));
    await assert.rejects(publicGuard.resolve("one-more.example"), /the name server answers slowly/);
    waiting.shift()?.(null, [{ address: "192.0.2.1", family: 4 }]);
    assert.deepEqual(await lookups.shift(), [{ address: "192.0.2.1", family: 4 }]);
    lookups.push(publicGuard.resolve("next.example"));
    for (const done of waiting) done(new Error("ENOTFOUND"), []);
    for (const lookup of lookups) await assert.rejects(lookup, /ENOTFOUND/);
    assert.equal(waiting.length, maxLookups);
  });
});
