import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type Config, type ConfigRequest, resolveConfig } from "../../../runtime/config/config.ts";
import { appliesTo, keyEntries } from "../../../runtime/config/keys.ts";
import { plannedFlags, plannedKeys } from "../../../runtime/config/planned.ts";
import { parseToml } from "../../../runtime/config/toml.ts";

function resolve(request: Partial<ConfigRequest> & { text?: string }): Config {
  const { text, ...others } = request;
  const file = text === undefined ? {} : { file: parseToml(text, "troupe.toml") };
  return resolveConfig({
    command: "serve",
    flags: {},
    environment: {},
    defaultModel: "the-default",
    ...file,
    ...others,
  });
}

function assertRefused(request: Parameters<typeof resolve>[0], message: string | RegExp): void {
  assert.throws(() => resolve(request), { name: "ServerError", code: "config_invalid", message });
}

const oneModel = '\n[[models]]\nmodel_id = "a"\n';

describe("defaults", () => {
  it("are the contract's", () => {
    const config = resolve({});
    assert.deepEqual(
      [config.maxSeqs, config.maxNumBatchedTokens, config.maxPrefillChunkTokens, config.maxDecodeStepsBeforePrefill],
      [32, 4096, 512, 8],
    );
    assert.deepEqual([config.server.host, config.server.port], ["0.0.0.0", 1234]);
    assert.equal(config.troupe.keepAliveInterval, 10_000);
    assert.deepEqual(
      config.models.map(({ modelId }) => modelId),
      ["the-default"],
    );
  });

  it("differ between run and serve where the contract says so", () => {
    assert.equal(resolve({ command: "run" }).maxSeqs, 1);
  });

  it("are themselves valid values", () => {
    for (const { name, key } of keyEntries) {
      for (const value of [key.default, ...Object.values(key.defaultOf ?? {})]) {
        if (value !== null) assert.ok(key.type.safeParse(value).success, name);
      }
    }
  });

  it("are frozen all the way down", () => {
    const config = resolve({ flags: { "--model-id": ["a", "b"] } });
    for (const part of [
      config,
      config.server,
      config.models,
      config.models[1],
      config.models[0]?.device,
      config.bench.depth,
    ]) {
      assert.ok(Object.isFrozen(part));
    }
  });

  it("survive being sent to another thread", () => {
    const config = resolve({});
    assert.deepEqual(structuredClone(config), config);
  });
});

describe("the order of sources", () => {
  const text = `command = "serve"\n[troupe]\nkeep_alive_interval = 1${oneModel}`;
  const environment = { KEEP_ALIVE_INTERVAL: "2" };

  it("is defaults, file, environment, flags", () => {
    assert.equal(resolve({ text }).troupe.keepAliveInterval, 1);
    assert.equal(resolve({ text, environment }).troupe.keepAliveInterval, 2);
    assert.equal(resolve({ text, environment, flags: { "--keep-alive-interval": "3" } }).troupe.keepAliveInterval, 3);
  });

  it("lets -m replace the models of the file, and other model flags change them all", () => {
    const text = `command = "serve"${oneModel}max_model_len = 7${oneModel.replace('"a"', '"b"')}`;
    assert.deepEqual(
      resolve({ text, flags: { "--model-id": ["x"] } }).models.map(({ modelId }) => modelId),
      ["x"],
    );
    const changed = resolve({ text, flags: { "--max-model-len": "9" } });
    assert.deepEqual(
      changed.models.map(({ maxModelLen }) => maxModelLen),
      [9, 9],
    );
    assert.deepEqual(
      resolve({ text }).models.map(({ maxModelLen }) => maxModelLen),
      [7, null],
    );
  });

  it("puts a model's own chat template above the general one", () => {
    const text = `command = "serve"\nchat_template = "g.jinja"${oneModel}${oneModel.replace('"a"', '"b"')}chat_template = "b.jinja"\n`;
    assert.deepEqual(
      resolve({ text }).models.map(({ chatTemplate }) => chatTemplate),
      ["g.jinja", "b.jinja"],
    );
  });

  it("takes general keys under [runtime] too, but not from both places", () => {
    assert.equal(resolve({ text: `command = "serve"\n[runtime]\nmax_seqs = 4${oneModel}` }).maxSeqs, 4);
    const twice = `command = "serve"\nmax_seqs = 3\n[runtime]\nmax_seqs = 4${oneModel}`;
    assertRefused({ text: twice }, 'troupe.toml:4: "max_seqs" is set twice, at the top and under [runtime]');
  });
});

describe("values", () => {
  it("of every key are the same from a flag and from a file", () => {
    const samples: Record<string, [flag: string | true, toml: string]> = {
      port: ["8080", "8080"],
      max_seqs: ["5", "5"],
      decode_slowdown: ["1.5", "1.5"],
      disable_access_log: [true, "true"],
      mmap: ["false", "false"],
      isolate: ["true", "true"],
      engine: ["llama", '"llama"'],
      kv_cache: ["4GiB", '"4GiB"'],
    };
    const sections = { general: "", server: "[server]\n", pagedAttn: "[paged_attn]\n", troupe: "[troupe]\n" };
    for (const [name, [flag, toml]] of Object.entries(samples)) {
      const entry = keyEntries.find((candidate) => candidate.name === name)!;
      const section = sections[entry.group as keyof typeof sections];
      const byFile = resolve({ text: `command = "serve"\n${section}${name} = ${toml}${oneModel}` });
      const byFlag = resolve({ flags: { [entry.flag]: flag, "--model-id": ["a"] } });
      assert.deepEqual(byFile, byFlag, name);
      assert.notDeepEqual(byFlag, resolve({ flags: { "--model-id": ["a"] } }), name);
    }
  });

  it("of kv_cache are bytes or tokens", () => {
    const budget = (given: string) => resolve({ flags: { "--kv-cache": given } }).pagedAttn.kvCache;
    assert.deepEqual(budget("4GiB"), { bytes: 4 * 2 ** 30 });
    assert.deepEqual(budget("1.5GB"), { bytes: 1_500_000_000 });
    assert.deepEqual(budget("65536tokens"), { tokens: 65536 });
    for (const given of ["auto", "4", "0GiB", "-1GiB", "1.5tokens", "0tokens", "4gib", "GiB", "1e3MB"]) {
      assertRefused(
        { flags: { "--kv-cache": given } },
        `--kv-cache expects an amount of memory such as 4GiB or 65536tokens; got "${given}"`,
      );
    }
  });

  it("that are wrong are refused with what was expected and what came", () => {
    const cases: [Record<string, string>, string | RegExp][] = [
      [{ "--port": "70000" }, "--port expects a whole number from 0 to 65535; got 70000"],
      [{ "--keep-alive-interval": "2147483648" }, /from 1 to 2147483647; got 2147483648$/],
      [{ "--stalled-reader-secs": "2147484" }, /from 1 to 2147483; got 2147484$/],
      [{ "--load-timeout-secs": "2147484" }, /from 1 to 2147483; got 2147484$/],
      [{ "--shutdown-deadline-secs": "2147484" }, /from 0 to 2147483; got 2147484$/],
      [{ "--port": "80x" }, '--port expects a whole number from 0 to 65535; got "80x"'],
      [{ "--max-seqs": "0" }, "--max-seqs expects a whole number from 1 to 4096; got 0"],
      [{ "--max-num-batched-tokens": "0" }, "--max-num-batched-tokens expects a whole number from 1 to 1048576; got 0"],
      [{ "--max-num-batched-tokens": "9007199254740991" }, /from 1 to 1048576; got 9007199254740991$/],
      [{ "--max-prefill-chunk-tokens": "0" }, "--max-prefill-chunk-tokens expects a whole number, at least 1; got 0"],
      [
        { "--max-decode-steps-before-prefill": "1.5" },
        "--max-decode-steps-before-prefill expects a whole number, at least 1; got 1.5",
      ],
      [{ "--access-log-format": "xml" }, '--access-log-format expects one of text, json; got "xml"'],
      [{ "--host": "" }, '--host expects an address; got ""'],
      [{ "--mmap": "no" }, '--mmap expects true or false; got "no"'],
      [{ "--decode-slowdown": "1" }, "--decode-slowdown expects a number above 1; got 1"],
    ];
    for (const [flags, message] of cases) assertRefused({ flags }, message);
  });

  it("of the environment are checked too", () => {
    assertRefused({ environment: { KEEP_ALIVE_INTERVAL: "soon" } }, /^KEEP_ALIVE_INTERVAL expects a whole number/);
    assert.equal(resolve({ environment: { KEEP_ALIVE_INTERVAL: "" } }).troupe.keepAliveInterval, 10_000);
  });
});

describe("the startup rules", () => {
  it("expect a model in a file", () => {
    assertRefused({ text: 'command = "serve"\n' }, /^troupe.toml: at least one model is expected/);
    assertRefused(
      { text: 'command = "serve"\n[[models]]\nkind = "text"\n' },
      "troupe.toml:2: [[models]] expects a model_id; got none",
    );
  });

  it("expect default_model_id to be one of the models", () => {
    const text = `command = "serve"\ndefault_model_id = "b"${oneModel}`;
    assertRefused({ text }, 'default_model_id expects one of "a"; got "b"');
    const both = `${text}[[models]]\nmodel_id = "b"\n`;
    assert.equal(resolve({ text: both }).defaultModelId, "b");
    assert.equal(resolve({ flags: { "--model-id": ["x", "y"] } }).defaultModelId, "x");
  });

  it("expect cpu to be the same for all models that set it, and then hold it for all", () => {
    const models = (...cpu: string[]) =>
      `command = "serve"${cpu.map((line, index) => `\n[[models]]\nmodel_id = "${index}"\n[models.device]\n${line}\n`).join("")}`;
    assertRefused({ text: models("cpu = true", "cpu = false") }, /^cpu expects the same value/);
    const { models: resolved } = resolve({ text: models("cpu = true", "") });
    assert.deepEqual(
      resolved.map(({ device }) => device.cpu),
      [true, true],
    );
  });

  it("expect each model once", () => {
    assertRefused({ flags: { "--model-id": ["a", "a"] } }, /^model_id "a" is given twice/);
  });

  it("expect a depth above 0 when the benchmark generates", () => {
    assertRefused({ command: "bench", flags: { "--depth": "0,4" } }, /^--depth expects numbers above 0/);
    const { bench } = resolve({ command: "bench", flags: { "--depth": "0", "--gen-len": "0", "--prompt-len": "1,2" } });
    assert.deepEqual([bench.depth, bench.promptLen], [[0], [1, 2]]);
  });
});

describe("nothing is ignored", () => {
  it("of a file: a key is built, not supported yet, or unknown", () => {
    const cases: [string, string][] = [
      ["enable_search = true", 'troupe.toml:2: "enable_search" is not supported yet by this version of troupe'],
      ["enable_search = false", 'troupe.toml:2: "enable_search" is not supported yet by this version of troupe'],
      ["[server]\nport = 1\nno_ui = true", 'troupe.toml:4: "no_ui" is not supported yet by this version of troupe'],
      ["[sandbox]\nmode = 1", 'troupe.toml:3: "mode" is not supported yet by this version of troupe'],
      ["max_seq = 1", 'troupe.toml:2: unknown key "max_seq"; did you mean "max_seqs"?'],
      ["port = 1", 'troupe.toml:2: unknown key "port"; it belongs in [server]'],
      ["[server]\nseed = 1", 'troupe.toml:3: unknown key "seed" in [server]; it belongs at the top of the file'],
      ["[servers]\nport = 1", 'troupe.toml:1: unknown key "servers"; did you mean "server"?'],
      ["server = 3", "troupe.toml:2: server expects a section [server]; got 3"],
      ["[bench]\nwarmup = 1", 'troupe.toml:1: unknown key "bench"'],
      ['troupe = { engine = "wasm" }', 'troupe.toml:2: engine: "wasm" is not supported yet by this version of troupe'],
    ];
    for (const [line, message] of cases) assertRefused({ text: `command = "serve"\n${line}${oneModel}` }, message);
    assertRefused({ text: `command = "serve"\n__proto__ = 1${oneModel}` }, /^troupe.toml:2/);
  });

  it("of a model's entry, with the line in that entry", () => {
    const second = (line: string) => `command = "serve"${oneModel}[[models]]\nmodel_id = "b"\n${line}\n`;
    assertRefused(
      { text: second("max_model_len = -1") },
      "troupe.toml:6: max_model_len expects a whole number, at least 1; got -1",
    );
    assertRefused(
      { text: second("modle_id = 1") },
      'troupe.toml:6: unknown key "modle_id" in [[models]]; did you mean "model_id"?',
    );
    assertRefused(
      { text: second('[models.format]\nformat = "gguf"') },
      'troupe.toml:7: "format" is not supported yet by this version of troupe',
    );
    assertRefused(
      { text: second('kind = "speech"') },
      'troupe.toml:6: kind: "speech" is not supported yet by this version of troupe',
    );
    assertRefused(
      { text: 'command = "serve"\n[models]\nmodel_id = "a"\n' },
      "troupe.toml:2: models expects [[models]] sections",
    );
  });

  it("of the flags and the environment", () => {
    assertRefused({ flags: { "--isq": "4" } }, '"--isq" is not supported yet by this version of troupe');
    assertRefused({ flags: { "--engin": "llama" } }, 'unknown flag "--engin"; did you mean "--engine"?');
    assertRefused({ flags: { "--engine": "wasm" } }, '--engine: "wasm" is not supported yet by this version of troupe');
    assertRefused({ environment: { MCP_CONFIG_PATH: "x" } }, /^environment: "MCP_CONFIG_PATH" is not supported yet/);
  });

  it("because the command has no use for it", () => {
    assertRefused(
      { command: "run", flags: { "--port": "1" } },
      '"--port" means nothing to the command run; leave it out',
    );
    const text = 'command = "run"\n[server]\nport = 1\n';
    assertRefused({ command: "run", text }, 'troupe.toml:3: "port" means nothing to the command run; leave it out');
    assert.equal(keyEntries.filter((entry) => entry.group === "server" && appliesTo(entry, "run")).length, 0);
  });
});

describe("the table", () => {
  it("has each flag and each key of a section once, and none that is planned", () => {
    const flags = keyEntries
      .filter(({ key }) => !key.fileOnly)
      .flatMap(({ flag, key }) => [flag, key.alias ?? []].flat());
    assert.deepEqual(
      flags.filter((flag, index) => flags.indexOf(flag) !== index || plannedFlags.has(flag)),
      [],
    );
    const built = new Set(keyEntries.map(({ name }) => name));
    for (const section of ["", "server", "paged_attn", "models", "models.device"]) {
      for (const name of plannedKeys(section) ?? []) assert.ok(!built.has(name), name);
    }
  });
});

describe("a TOML file", () => {
  it("that is no TOML is refused with line, column and the line itself", () => {
    assertRefused({ text: 'command = "serve"\nx = [\n' }, /^troupe\.toml:\d+:\d+: not TOML: [\s\S]*x = \[/);
  });

  it("names its command", () => {
    assert.equal(parseToml('command = "run"', "f").command, "run");
    assert.throws(() => parseToml("seed = 1", "f"), { message: 'f:1: command expects "serve" or "run"; got nothing' });
    assert.throws(() => parseToml('\ncommand = "go"', "f"), {
      message: 'f:2: command expects "serve" or "run"; got "go"',
    });
  });
});
