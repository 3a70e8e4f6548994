// Random adapter operations on a model: loads, replacements, unloads, requests, crashes and orders of replies. The test
// checks the invariants after each operation.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { AdapterLease } from "../../../../actors/lora-registry/model-adapters.ts";
import { createAdapters, rest } from "./lora-registry-rig.ts";

const aliases = ["a", "b", "c"];
const paths = ["/1?bytes=100", "/2?bytes=200", "/3?bytes=300", "/4?bytes=400"];
const limits = { maxAdapters: 2, maxBytes: 900 };

const operation = fc.record({
  kind: fc.constantFrom("load", "swap", "unload", "lease", "lease", "release", "answer", "answer", "answer", "crash"),
  alias: fc.constantFrom(...aliases),
  path: fc.constantFrom(...paths),
  /** Index of an existing adapter or alias. */
  at: fc.nat(),
  /** Whether the request names the current version as expected_generation. */
  isConditional: fc.boolean(),
});
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

/** Creates the server on which the operations run. */
async function createRun() {
  const rig = await createAdapters(null, { limits });
  rig.outside.isManual = true;
  const leases: AdapterLease[] = [];
  const generationsById = new Map<number, string>();
  const unsettled = new Set<Promise<unknown>>();

  function watch(): void {
    rig.model.onFree = (id) => {
      assert.ok(!leases.some(({ adapter }) => adapter.id === id), `adapter ${id} is freed under a request`);
    };
  }
  watch();

  function track(promise: Promise<unknown>): void {
    const settled = promise.catch((error: unknown) => {
      if (!(error instanceof Error) || error.name !== "ServerError") throw error;
    });
    unsettled.add(settled);
    void settled.finally(() => unsettled.delete(settled));
  }

  function lease(alias: string): void {
    const entry = rig.adapters.entries().find((known) => known.alias === alias);
    if (entry === undefined) return;
    const taken = rig.adapters.lease({ alias });
    const { id, generation } = taken.adapter;
    assert.equal(generation, entry.generation);
    assert.equal(generationsById.get(id) ?? generation, generation, "an id never names two versions");
    generationsById.set(id, generation as string);
    leases.push(taken);
  }

  function load({ alias, path, isConditional }: Operation, replace: boolean): void {
    const now = rig.adapters.entries().find((entry) => entry.alias === alias)?.generation;
    const expectedGeneration = replace && isConditional ? (now ?? null) : null;
    track(rig.load(alias, path, { replace, expectedGeneration }));
  }

  function apply(given: Operation): void {
    const { kind, alias, at } = given;
    const { pending } = rig.outside;
    if (kind === "load") load(given, false);
    else if (kind === "swap") load(given, true);
    else if (kind === "unload") track(rig.unload(alias));
    else if (kind === "lease") lease(alias);
    else if (kind === "release") leases.splice(at % (leases.length + 1), 1)[0]?.release();
    else if (kind === "answer") pending[at % (pending.length + 1)]?.settle();
    else if (at % 5 === 0) {
      track(rig.restart());
      watch();
    }
  }

  function check(): void {
    const { generations, residentBytes } = rig.adapters.list();
    const live = generations.filter(({ retired }) => !retired);
    assert.ok(live.length <= limits.maxAdapters && residentBytes <= limits.maxBytes);
    assert.equal(new Set(generations.map(({ generation }) => generation)).size, generations.length);
    for (const { adapter } of leases) {
      assert.equal(rig.model.held.get(adapter.id) ?? adapter.generation, adapter.generation);
    }
  }

  /** Replies to all pending calls until none are left. */
  async function settle(): Promise<void> {
    await rest();
    while (unsettled.size > 0 || rig.outside.pending.length > 0) {
      rig.outside.pending[0]?.settle();
      await rest();
    }
  }

  function checkHeld(): void {
    const { generations } = rig.adapters.list();
    assert.deepEqual(rig.held(), generations.map(({ generation }) => generation).sort());
    const held = [...rig.model.held.keys()];
    for (const { adapter } of leases) assert.ok(held.includes(adapter.id), `the engine has ${adapter.id}`);
  }

  return { rig, leases, apply, check, settle, checkHeld };
}

describe("the adapters of a model", () => {
  it("keep the versions in use, hold none twice, and leave none, in any order of operations", async () => {
    const operations = fc.array(operation, { minLength: 100, maxLength: 100 });
    let loaded = 0;
    const property = fc.asyncProperty(operations, async (given) => {
      const { rig, leases, apply, check, settle, checkHeld } = await createRun();
      for (const one of given) {
        apply(one);
        await rest();
        check();
      }
      await settle();
      checkHeld();
      loaded += rig.log.lines.filter(({ level }) => level === "info").length;

      for (const lease of leases.splice(0)) lease.release();
      for (const { alias } of rig.adapters.entries()) await rig.unload(alias);
      await settle();
      const { generations, residentBytes } = rig.adapters.list();
      assert.deepEqual([generations, residentBytes, rig.held()], [[], 0, []]);
      await rig.filesAre(0);
      const errors = rig.log.lines.filter(({ level }) => level === "error");
      assert.deepEqual(
        errors.map(({ fields }) => String(fields.err)),
        [],
      );
      rig.remove();
    });
    await fc.assert(property, { numRuns: 20, endOnFailure: true });
    assert.ok(loaded > 20, `${loaded} loads came through: the operations test nothing`);
  });
});
