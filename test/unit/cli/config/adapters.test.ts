import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { assertRefused, resolve, textWith } from "./resolve.ts";

const loraOf = (...given: string[]) => resolve({ flags: { "--lora": given } }).models[0]?.adapter.lora;

describe("--lora", () => {
  it("takes ALIAS=SOURCE, where the source may hold a = of its own", () => {
    assert.deepEqual(loraOf("code=/adapters/code", " math = org/math=2 "), [
      { alias: "code", source: "/adapters/code", revision: "main" },
      { alias: "math", source: "org/math=2", revision: "main" },
    ]);
  });

  it("takes JSON with the names of a file's fields, and with those that other servers use", () => {
    assert.deepEqual(
      loraOf('{"alias":"a","source":"s","revision":"v2"}', '{"name":"b","path":"p"}', '{"name":"c","path":"p=q"}'),
      [
        { alias: "a", source: "s", revision: "v2" },
        { alias: "b", source: "p", revision: "main" },
        { alias: "c", source: "p=q", revision: "main" },
      ],
    );
  });

  it("refuses what is neither, with what came", () => {
    for (const given of ["x", "=s", "x=", "  =s", '{"alias":"a"}', '{"name":"b","path":"p","rank":1}', '{"name":1}']) {
      assertRefused({ flags: { "--lora": [given] } }, /^--lora expects entries of a printable alias of 1 to 256 bytes/);
    }
    assertRefused({ flags: { "--lora": ["x"] } }, /; got \["x"\]$/);
  });

  it("takes aliases of up to 256 bytes", () => {
    assert.equal(loraOf(`${"ä".repeat(128)}=s`)?.length, 1);
    assertRefused({ flags: { "--lora": [`${"ä".repeat(128)}a=s`] } }, /^--lora expects entries of a printable alias/);
  });

  it("says something about every model, and a file about one", () => {
    const flags = { "--model-id": ["a", "b"], "--lora": ["x=s"] };
    assert.deepEqual(
      resolve({ flags }).models.map(({ adapter }) => adapter.lora.length),
      [1, 1],
    );
    const text = `${textWith("[models.adapter]", 'lora = [{ alias = "x", source = "s" }]')}[[models]]\nmodel_id = "b"\n`;
    assert.deepEqual(
      resolve({ text }).models.map(({ adapter }) => adapter.lora.length),
      [1, 0],
    );
  });
});

describe("the adapters of a model", () => {
  it("are none, under the contract's limits, where nothing is said", () => {
    assert.deepEqual(resolve({}).models[0]?.adapter, {
      enableLora: false,
      lora: [],
      loraMaxAdapters: 16,
      loraMaxRank: 256,
      loraMaxBytes: 8 * 2 ** 30,
      legacyLora: null,
      legacyLoraOrder: null,
      xlora: null,
      xloraOrder: null,
      tgtNonGranularIndex: null,
    });
  });

  it("may be those of an X-LoRA, whose weights are kept after any number of tokens", () => {
    const flags = { "--xlora": "acme/xlora", "--xlora-order": "order.json", "--tgt-non-granular-index": "0" };
    const { xlora, xloraOrder, tgtNonGranularIndex } = resolve({ flags }).models[0]?.adapter ?? {};
    assert.deepEqual([xlora, xloraOrder, tgtNonGranularIndex], ["acme/xlora", "order.json", 0]);
    assertRefused({ flags: { ...flags, "--tgt-non-granular-index": "-1" } }, /^--tgt-non-granular-index expects/);
  });

  it("have limits of at least 1, by every name they have", () => {
    const limited = { "--enable-lora": true, "--max-lora-rank": "8", "--lora-max-bytes": "8GiB" } as const;
    const adapter = resolve({ flags: limited }).models[0]?.adapter;
    assert.deepEqual([adapter?.loraMaxRank, adapter?.loraMaxBytes], [8, 2 ** 33]);
    for (const flag of ["--lora-max-adapters", "--lora-max-rank", "--lora-max-bytes"]) {
      assertRefused({ flags: { "--enable-lora": true, [flag]: "0" } }, new RegExp(`^${flag} expects`));
    }
  });
});

describe("requests that load adapters", () => {
  const server = (name: string, value: string) => resolve({ environment: { [name]: value } }).server;

  it("are allowed by the environment alone", () => {
    const isAllowed = (value: string) => server("SERVICE_ALLOW_RUNTIME_LORA_UPDATING", value).allowRuntimeLoraUpdating;
    assert.deepEqual(["1", "true", "yes", "on", "True", " ON "].map(isAllowed), Array(6).fill(true));
    assert.deepEqual(["0", "false", "no", "off", ""].map(isAllowed), Array(5).fill(false));
    assert.equal(resolve({}).server.allowRuntimeLoraUpdating, false);
    assertRefused({ flags: { "--allow-runtime-lora-updating": true } }, /^unknown flag/);
  });

  it("may be held to a folder", () => {
    assert.equal(resolve({}).server.loraAdapterRoot, null);
    assert.equal(server("SERVICE_LORA_ADAPTER_ROOT", "/adapters").loraAdapterRoot, "/adapters");
    const empty = { SERVICE_LORA_ADAPTER_ROOT: "" };
    assertRefused({ environment: empty }, /^environment: SERVICE_LORA_ADAPTER_ROOT expects a folder; got ""/);
    resolve({ command: "run", environment: empty });
    assertRefused({ text: textWith("[server]", 'lora_adapter_root = "/a"') }, /unknown key "lora_adapter_root"/);
  });

  it("mean nothing to a conversation without a server", () => {
    resolve({ command: "run", environment: { SERVICE_ALLOW_RUNTIME_LORA_UPDATING: "maybe" } });
  });
});

describe("models that rest", () => {
  it("stay in memory, all of them, where nothing is said", () => {
    const { maxLoadedModels, idleUnloadSecs } = resolve({}).troupe;
    assert.deepEqual([maxLoadedModels, idleUnloadSecs], [null, 0]);
  });

  it("go by number and by time", () => {
    const { troupe } = resolve({ flags: { "--max-loaded-models": "1", "--idle-unload-secs": "300" } });
    assert.deepEqual([troupe.maxLoadedModels, troupe.idleUnloadSecs], [1, 300]);
    assertRefused({ flags: { "--max-loaded-models": "0" } }, /^--max-loaded-models expects a whole number, at least 1/);
    assertRefused({ flags: { "--idle-unload-secs": "-1" } }, /^--idle-unload-secs expects a whole number from 0/);
    assertRefused({ command: "run", flags: { "--max-loaded-models": "1" } }, /does not apply to the command run/);
  });
});
