import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { appliesTo, groups, type KeyEntry, keyEntries } from "../../../../cli/config/keys.ts";
import { assertRefused, oneModel, resolve } from "./resolve.ts";

describe("an unusable setting is rejected", () => {
  it("in a file: a name that is not in the table, with the nearest name", () => {
    const cases: [string, string][] = [
      ["max_seq = 1", 'troupe.toml:2: unknown key "max_seq"; did you mean "max_seqs"?'],
      ["port = 1", 'troupe.toml:2: unknown key "port"; it belongs in [server]'],
      ["[server]\nseed = 1", 'troupe.toml:3: unknown key "seed" in [server]; it belongs at the top of the file'],
      ["[servers]\nport = 1", 'troupe.toml:2: unknown key "servers"; did you mean "server"?'],
      ["server = 3", "troupe.toml:2: server expects a section [server]; got 3"],
      ["[bench]\nwarmup = 1", 'troupe.toml:2: unknown key "bench"'],
      ['"models.format" = { mmproj = "x" }', 'troupe.toml:2: unknown key "models.format"'],
      ['"" = 1', 'troupe.toml:1: unknown key ""'],
      ["allow_runtime_lora_updating = false", 'troupe.toml:2: unknown key "allow_runtime_lora_updating"'],
    ];
    for (const [line, message] of cases) assertRefused({ text: `command = "serve"\n${line}${oneModel}` }, message);
    assertRefused({ text: `command = "serve"\n__proto__ = 1${oneModel}` }, /^troupe.toml:2/);
  });

  it("in a model's entry, with the line in that entry", () => {
    const second = (line: string) => `command = "serve"${oneModel}[[models]]\nmodel_id = "b"\n${line}\n`;
    const cases: [string, string][] = [
      [
        "max_model_len = -1",
        "troupe.toml:6: max_model_len expects a whole number, at least 1, such as 8192 or 8K; got -1",
      ],
      ["modle_id = 1", 'troupe.toml:6: unknown key "modle_id" in [[models]]; did you mean "model_id"?'],
      ["format = 1", "troupe.toml:6: format expects a section [models.format]; got 1"],
      ["[models.format]\nmmproj = 1", "troupe.toml:7: mmproj expects a path of a file; got 1"],
      ["format = { mmproj = 1 }", "troupe.toml:6: mmproj expects a path of a file; got 1"],
      ["format.mmproj = 1", "troupe.toml:6: mmproj expects a path of a file; got 1"],
      [
        '[models.adapter]\n[[models.adapter.lora]]\nalias = ""\nsource = "s"',
        'troupe.toml:7: lora expects entries of a printable alias of 1 to 256 bytes, a nonempty source and an optional revision; got [{"alias":"","source":"s"}]',
      ],
    ];
    for (const [line, message] of cases) assertRefused({ text: second(line) }, message);
    assertRefused(
      { text: 'command = "serve"\n[models]\nmodel_id = "a"\n' },
      "troupe.toml:2: models expects [[models]] sections",
    );
  });

  it("in a key set by two of its names", () => {
    assertRefused(
      { command: "run", text: `command = "run"\nthinking = true\nenable_thinking = true${oneModel}` },
      'troupe.toml:3: "enable_thinking" is already set, as "thinking" (troupe.toml:2)',
    );
  });

  it("in the flags and the environment", () => {
    assertRefused({ flags: { "--engin": "llama" } }, 'unknown flag "--engin"; did you mean "--engine"?');
    assertRefused(
      { environment: { TROUPE_MAX_IMAGE_LENGTH: "9" } },
      'environment: "TROUPE_MAX_IMAGE_LENGTH" has no meaning: the projector file (mmproj) decides the memory of the image encoder, which is reserved at load; max_edge limits the size of images; remove it',
    );
    assertRefused(
      { environment: { SERVICE_SANDBOX: "maybe" } },
      'environment: SERVICE_SANDBOX expects one of auto, on, off; got "maybe"',
    );
    assertRefused(
      { environment: { SERVICE_ALLOW_RUNTIME_LORA_UPDATING: "maybe" } },
      'environment: SERVICE_ALLOW_RUNTIME_LORA_UPDATING expects one of 1, true, yes, on, 0, false, no, off; got "maybe"',
    );
    assert.equal(resolve({ environment: { SERVICE_SANDBOX: "off" } }).sandbox.mode, "off");
    // Variables apply to all commands, but bench ignores these.
    resolve({ command: "bench", environment: { MCP_CONFIG_PATH: "x", KEEP_ALIVE_INTERVAL: "soon" } });
  });

  it("because the command has no use for it", () => {
    assertRefused(
      { command: "run", flags: { "--port": "1" } },
      '"--port" does not apply to the command run; remove it',
    );
    const text = 'command = "run"\n[server]\nport = 1\n';
    assertRefused({ command: "run", text }, 'troupe.toml:3: "port" does not apply to the command run; remove it');
    const shared = keyEntries.filter((entry) => entry.group === "server" && appliesTo(entry, "run"));
    assert.deepEqual(
      shared.map(({ field }) => field),
      ["maxToolRounds"],
    );
  });
});

describe("the table", () => {
  it("has each flag and each key of a section once", () => {
    const flags = keyEntries.flatMap(({ flags, shortFlag }) => [...flags, shortFlag ?? []].flat());
    const names = keyEntries.flatMap(({ names, group }) => names.map((name) => `${groups[group].section}.${name}`));
    for (const list of [flags, names]) {
      assert.deepEqual(
        list.filter((name, index) => list.indexOf(name) !== index),
        [],
      );
    }
  });

  it("gives planned keys no place in the settings", () => {
    const config = resolve({});
    // @ts-expect-error A planned key has no field that could be read.
    assert.equal(config.noKvCache, undefined);
    const fields = [config, config.server, config.models[0]!].flatMap((part) => Object.keys(part));
    const isRead = ({ key, field }: KeyEntry) => key.planned && fields.includes(field) && field !== "format";
    assert.deepEqual(keyEntries.filter(isRead), []);
  });
});
