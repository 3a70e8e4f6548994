// Client salt: shared by all replicas, and used to hash client names.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { clientSalt, clientSaltLimits, restoreClientSalt } from "../../../../actors/state/shared/client-salt.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import { TableStore } from "../../../../runtime/store/table-store.ts";

describe("the salt of the names of clients", () => {
  it("is the same for all replicas, also if they start at the same time, and differs for another store", async () => {
    const store = new TableStore<string>(new MemoryTables(), clientSaltLimits);
    const salts = await Promise.all([1, 2, 3, 4].map(() => clientSalt(store)));
    assert.equal(new Set([...salts, await clientSalt(store)]).size, 1);
    assert.match(salts[0] as string, /^[\w-]{22}$/);
    assert.notEqual(await clientSalt(new TableStore<string>(new MemoryTables(), clientSaltLimits)), salts[0]);
  });

  it("is restored after the store has lost it, unless there is a new one", async () => {
    const store = new TableStore<string>(new MemoryTables(), clientSaltLimits);
    for (const salt of ["first", "second"]) await restoreClientSalt(store, salt);
    assert.equal(await clientSalt(store), "first");
  });
});
