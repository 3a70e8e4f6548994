import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { legacyAdapters } from "../../../../cli/assembly/adapters/legacy-lora.ts";

const folder = mkdtempSync(join(tmpdir(), "legacy-lora-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function orderFile(content: unknown): string {
  const path = join(folder, "order.json");
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  return path;
}

const sources = ["/adapters/math", "acme/code@v2", "prose.gguf"];

async function assertRefused(content: unknown, message: RegExp, given = sources): Promise<void> {
  await assert.rejects(legacyAdapters(given, orderFile(content)), { code: "config_invalid", message });
}

describe("the adapters of legacy_lora", () => {
  it("are all of them if no order is given", async () => {
    assert.deepEqual(
      (await legacyAdapters(sources, null)).map(({ source, member }) => [source, member]),
      sources.map((source) => [source, null]),
    );
  });

  it("are those that the order names, in its order, by their names or as configured", async () => {
    const order = orderFile({
      order: ["prose", "/adapters/math", "code"],
      layers: { "model.0": 1 },
      base_model_id: "b",
    });
    assert.deepEqual(await legacyAdapters(sources, order), [
      { source: "prose.gguf", member: null },
      { source: "/adapters/math", member: null },
      { source: "acme/code@v2", member: null },
    ]);
  });

  it("may be in one source, which contains the named adapters", async () => {
    const order = orderFile({ order: ["adapter_2", "adapter_1"] });
    assert.deepEqual(await legacyAdapters(["acme/x-lora"], order), [
      { source: "acme/x-lora", member: "adapter_2" },
      { source: "acme/x-lora", member: "adapter_1" },
    ]);
  });

  it("are rejected if the order names others", async () => {
    await assertRefused({ order: ["math", "mth"] }, /order expects names .*: "math", "code", "prose"; got "mth"$/);
  });

  it("need a valid order", async () => {
    const expected =
      /order\.json" expects a JSON object whose "order" is a list of names, each once; got a file of another form$/;
    for (const content of ["{", [], {}, { order: [] }, { order: [""] }, { order: "math" }, { order: ["a", "a"] }]) {
      await assertRefused(content, expected);
    }
    await assert.rejects(legacyAdapters(sources, join(folder, "gone.json")), {
      code: "config_invalid",
      message: /^legacy_lora_order expects a file; ".*gone\.json" cannot be read: ENOENT/,
    });
  });
});
