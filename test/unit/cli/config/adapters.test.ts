import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { assertRefused, resolve, textWith } from "./resolve.ts";

const loraOf = (...given: string[]) => resolve({ flags: { "--lora": given } }).models[0]?.adapter.lora;

describe("--lora", () => {
  it("accepts ALIAS=SOURCE, where the source may contain another =", () => {
    assert.deepEqual(loraOf("code=/adapters/code", " math = org/math=2 "), [
      { alias: "code", source: "/adapters/code", revision: "main" },
      { alias: "math", source: "org/math=2", revision: "main" },
    ]);
  });

  it("accepts JSON with the field names of a file, and with those of other servers", () => {
    assert.deepEqual(
      loraOf('{"alias":"a","source":"s","revision":"v2"}', '{"name":"b","path":"p"}', '{"name":"c","path":"p=q"}'),
      [
        { alias: "a", source: "s", revision: "v2" },
        { alias: "b", source: "p", revision: "main" },
        { alias: "c", source: "p=q", revision: "main" },
      ],
    );
  });

  it("rejects anything else, with the given value", () => {
    for (const given of ["x", "=s", "x=", "  =s", '{"alias":"a"}', '{"name":"b","path":"p","rank":1}', '{"name":1}']) {
      assertRefused({ flags: { "--lora": [given] } }, /^--lora expects entries of a printable alias of 1 to 256 bytes/);
    }
    assertRefused({ flags: { "--lora": ["x"] } }, /; got \["x"\]$/);
  });

  it("accepts aliases of up to 256 bytes", () => {
    assert.equal(loraOf(`${"ä".repeat(128)}=s`)?.length, 1);
    assertRefused({ flags: { "--lora": [`${"ä".repeat(128)}a=s`] } }, /^--lora expects entries of a printable alias/);
  });

  it("applies to every model; in a file, to one", () => {
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
  it("are none by default, with the contract's limits", () => {
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

  it("have limits of at least 1, under every name of the limits", () => {
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

  it("are allowed only by the environment", () => {
    const isAllowed = (value: string) => server("SERVICE_ALLOW_RUNTIME_LORA_UPDATING", value).allowRuntimeLoraUpdating;
    assert.deepEqual(["1", "true", "yes", "on", "True", " ON "].map(isAllowed), Array(6).fill(true));
    assert.deepEqual(["0", "false", "no", "off", ""].map(isAllowed), Array(5).fill(false));
    assert.equal(resolve({}).server.allowRuntimeLoraUpdating, false);
    assertRefused({ flags: { "--allow-runtime-lora-updating": true } }, /^unknown flag/);
  });

  it("may be restricted to a folder", () => {
    assert.equal(resolve({}).server.loraAdapterRoot, null);
    assert.equal(server("SERVICE_LORA_ADAPTER_ROOT", "/adapters").loraAdapterRoot, "/adapters");
    const empty = { SERVICE_LORA_ADAPTER_ROOT: "" };
    assertRefused({ environment: empty }, /^environment: SERVICE_LORA_ADAPTER_ROOT expects a folder; got ""/);
    resolve({ command: "run", environment: empty });
    assertRefused({ text: textWith("[server]", 'lora_adapter_root = "/a"') }, /unknown key "lora_adapter_root"/);
  });

  it("have no effect on a conversation without a server", () => {
    resolve({ command: "run", environment: { SERVICE_ALLOW_RUNTIME_LORA_UPDATING: "maybe" } });
  });
});

describe("models without requests", () => {
  it("all stay in memory by default", () => {
    const { maxLoadedModels, idleUnloadSecs } = resolve({}).troupe;
    assert.deepEqual([maxLoadedModels, idleUnloadSecs], [null, 0]);
  });

  it("are unloaded by number and by time", () => {
    const { troupe } = resolve({ flags: { "--max-loaded-models": "1", "--idle-unload-secs": "300" } });
    assert.deepEqual([troupe.maxLoadedModels, troupe.idleUnloadSecs], [1, 300]);
    assertRefused({ flags: { "--max-loaded-models": "0" } }, /^--max-loaded-models expects a whole number, at least 1/);
    assertRefused({ flags: { "--idle-unload-secs": "-1" } }, /^--idle-unload-secs expects a whole number from 0/);
    assertRefused({ command: "run", flags: { "--max-loaded-models": "1" } }, /does not apply to the command run/);
  });
});
