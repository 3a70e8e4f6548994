// Adapter table: the effect of each operation on aliases and adapter versions.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { AdapterTable } from "../../../../actors/lora-registry/adapter-table.ts";
import type { AdapterVersion, Wanted } from "../../../../actors/lora-registry/adapter-version.ts";
import { generousLimits, withCode } from "./lora-registry-rig.ts";

const createTable = (limits = {}) => new AdapterTable("tiny", { ...generousLimits, ...limits });

let nextId = 1;

function createVersion(letter: string, bytes = 100): AdapterVersion {
  const prepared = { generation: letter.repeat(64), path: `/${letter}`, rank: 8, bytes };
  return { id: nextId++, prepared, home: `/homes/${letter}` };
}

function wanted(alias: string, changes: Partial<Wanted> = {}): Wanted {
  return { alias, source: `/sources/${alias}`, revision: null, replace: false, expectedGeneration: null, ...changes };
}

const states = (table: AdapterTable) =>
  table.list().generations.map(({ generation, aliases, retired, activeLeases }) => {
    const state = retired ? "retired" : aliases.join("+");
    return `${generation.slice(0, 1)}: ${state}, ${activeLeases}`;
  });

describe("the table of adapters", () => {
  it("has a version while an alias points to it", () => {
    const table = createTable();
    const a = createVersion("a");
    assert.deepEqual(table.point(wanted("one"), a, 5).freed, null);
    assert.deepEqual(states(table), ["a: one, 0"]);
    assert.deepEqual(table.entries(), [{ alias: "one", generation: a.prepared.generation, createdAt: 5 }]);
    assert.equal(table.find(a.prepared.generation)?.id, a.id);
    const { was, freed } = table.remove("one", null);
    assert.equal(was.source, "/sources/one");
    assert.equal(freed?.id, a.id);
    assert.deepEqual(states(table), []);
    assert.equal(table.has(a), false);
    assert.equal(table.residentBytes, 0);
  });

  it("has it while another alias points to it", () => {
    const table = createTable();
    const a = createVersion("a");
    table.point(wanted("one"), a, 0);
    table.point(wanted("two"), a, 0);
    assert.deepEqual(states(table), ["a: one+two, 0"]);
    assert.deepEqual(table.aliasesOf(a), ["one", "two"]);
    assert.equal(table.remove("one", null).freed, null);
    assert.equal(table.remove("two", null).freed?.id, a.id);
  });

  it("has it, retired, while a lease is held", () => {
    const table = createTable();
    const a = createVersion("a");
    table.point(wanted("one"), a, 0);
    const leases = [table.lease({ alias: "one" }), table.lease({ generation: a.prepared.generation })];
    assert.equal(table.remove("one", null).freed, null);
    assert.deepEqual(states(table), ["a: retired, 2"]);
    assert.throws(() => table.lease({ generation: a.prepared.generation }), withCode("invalid_value", "adapter"));
    assert.equal(table.release(leases[0]!), null);
    assert.equal(table.release(leases[1]!)?.id, a.id);
    assert.throws(() => table.release(a), /is not held/);
  });

  it("makes a retired version live again when an alias points to it again", () => {
    const table = createTable();
    const a = createVersion("a");
    table.point(wanted("one"), a, 0);
    const lease = table.lease({ alias: "one" });
    table.remove("one", null);
    table.point(wanted("two"), a, 0);
    assert.deepEqual(states(table), ["a: two, 1"]);
    assert.equal(table.release(lease), null);
    assert.deepEqual(states(table), ["a: two, 0"]);
  });

  it("retires or frees a replaced version", () => {
    const table = createTable();
    const [a, b, c] = [createVersion("a"), createVersion("b"), createVersion("c")];
    table.point(wanted("one"), a, 0);
    table.point(wanted("last"), a, 0);
    table.remove("last", null);
    const { loaded, replaced, freed } = table.point(wanted("one", { replace: true }), b, 0);
    assert.deepEqual([loaded.generation, replaced, freed?.id], [b.prepared.generation, a.prepared.generation, a.id]);
    table.lease({ alias: "one" });
    assert.equal(table.point(wanted("one", { replace: true }), c, 0).freed, null);
    assert.deepEqual(states(table), ["b: retired, 1", "c: one, 0"]);
  });

  it("keeps a version that is replaced by itself, with its new source", () => {
    const table = createTable();
    const a = createVersion("a");
    table.point(wanted("one"), a, 1);
    const { freed } = table.point(wanted("one", { replace: true, source: "/moved" }), a, 2);
    assert.equal(freed, null);
    assert.deepEqual(states(table), ["a: one, 0"]);
    assert.equal(table.list().adapters[0]?.source, "/moved");
    assert.equal(table.entries()[0]?.createdAt, 2);
  });

  it("lists aliases in order of arrival; a replaced one keeps its position", () => {
    const table = createTable();
    for (const letter of ["a", "b", "c"]) table.point(wanted(letter), createVersion(letter), 0);
    table.point(wanted("a", { replace: true }), createVersion("d"), 0);
    assert.deepEqual(
      table.entries().map(({ alias }) => alias),
      ["a", "b", "c"],
    );
  });

  it("changes nothing if it refuses an operation", () => {
    const table = createTable({ maxAdapters: 1, maxBytes: 150 });
    const a = createVersion("a");
    table.point(wanted("one"), a, 0);
    const before = table.list();
    const other = "f".repeat(64);
    const onlyIf = { replace: true, expectedGeneration: other };
    const refused = [
      () => table.point(wanted("one"), createVersion("b"), 0),
      () => table.point(wanted("two"), createVersion("b"), 0),
      () => table.point(wanted("one", { replace: true }), createVersion("b", 51), 0),
      () => table.point(wanted("one", onlyIf), createVersion("b"), 0),
      () => table.point(wanted("none", onlyIf), createVersion("b"), 0),
      () => table.remove("one", other),
      () => table.remove("none", null),
      () => table.lease({ alias: "none" }),
    ];
    const codes = [
      "lora_adapter_already_loaded",
      "lora_adapter_limit_exceeded",
      "lora_byte_limit_exceeded",
      "lora_generation_mismatch",
      "lora_adapter_not_found",
      "lora_generation_mismatch",
      "lora_adapter_not_found",
      "invalid_value",
    ] as const;
    for (const [index, attempt] of refused.entries()) assert.throws(attempt, withCode(codes[index]!));
    assert.deepEqual(table.list(), before);
  });

  it("does not accept the same content under two ids", () => {
    const table = createTable();
    table.point(wanted("one"), createVersion("a"), 0);
    assert.throws(() => table.point(wanted("two"), createVersion("a"), 0), /is already loaded/);
  });

  it("quotes no more of a name than the longest alias", () => {
    const table = createTable();
    assert.throws(
      () => table.lease({ alias: "x".repeat(100_000) }),
      (error) => withCode("invalid_value")(error) && (error as Error).message.length < 400,
    );
  });
});
