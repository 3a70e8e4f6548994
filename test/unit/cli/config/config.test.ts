import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { keyEntries } from "../../../../cli/config/keys.ts";
import { parseToml } from "../../../../cli/config/toml.ts";
import { assertRefused, oneModel, resolve } from "./resolve.ts";

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

  it("differ between run and serve as the contract says", () => {
    assert.equal(resolve({ command: "run" }).maxSeqs, 1);
  });

  it("are themselves valid values", () => {
    for (const { name, key } of keyEntries) {
      for (const value of [key.default, ...Object.values(key.defaultOf ?? {})]) {
        if (value !== null) assert.ok(key.type.safeParse(value).success, name);
      }
    }
  });

  it("are frozen deeply", () => {
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

  it("can be sent to another thread", () => {
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

  it("reads numbers of tokens with a unit from flags and variables", () => {
    const text = `command = "serve"${oneModel}`;
    const length = (given: string) => resolve({ text, flags: { "--max-model-len": given } }).models[0]?.maxModelLen;
    assert.deepEqual([length("8192"), length("8k"), length("8K"), length("1.5M")], [8192, 8000, 8192, 1_572_864]);
    for (const given of ["8G", "8 K", "k", "1.0001k"])
      assert.throws(() => length(given), /expects a whole number, at least 1, such as 8192 or 8K; got/);
  });

  it("puts a model's own chat template above the general one", () => {
    const text = `command = "serve"\nchat_template = "g.jinja"${oneModel}${oneModel.replace('"a"', '"b"')}chat_template = "b.jinja"\n`;
    assert.deepEqual(
      resolve({ text }).models.map(({ chatTemplate }) => chatTemplate),
      ["g.jinja", "b.jinja"],
    );
  });

  it("accepts general keys under [runtime] too, but not in both places", () => {
    assert.equal(resolve({ text: `command = "serve"\n[runtime]\nmax_seqs = 4${oneModel}` }).maxSeqs, 4);
    const twice = `command = "serve"\nmax_seqs = 3\n[runtime]\nmax_seqs = 4${oneModel}`;
    assertRefused({ text: twice }, 'troupe.toml:4: "max_seqs" is already set, as "max_seqs" (troupe.toml:2)');
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
      engine: ["wasm", '"wasm"'],
      kv_cache: ["4GiB", '"4GiB"'],
      mode: ["off", '"off"'],
      gpu_memory_utilization: ["0.9", "0.9"],
      kv_swap: ["2GiB", "2147483648"],
      prefix_cache_dir: ["/kv", '"/kv"'],
    };
    const valuesOf = (given: Parameters<typeof resolve>[0]) => ({ ...resolve(given), origins: [] });
    const sections = { general: "", server: "[server]\n", pagedAttn: "[paged_attn]\n", troupe: "[troupe]\n" };
    for (const [name, [flag, toml]] of Object.entries(samples)) {
      const entry = keyEntries.find((candidate) => candidate.name === name)!;
      const section = sections[entry.group as keyof typeof sections];
      const byFile = valuesOf({ text: `command = "serve"\n${section}${name} = ${toml}${oneModel}` });
      const byFlag = valuesOf({ flags: { [entry.flag]: flag, "--model-id": ["a"] } });
      assert.deepEqual(byFile, byFlag, name);
      assert.notDeepEqual(byFlag, valuesOf({ flags: { "--model-id": ["a"] } }), name);
    }
  });

  it("of kv_cache are bytes or tokens", () => {
    const budget = (given: string) => resolve({ flags: { "--kv-cache": given } }).pagedAttn.kvCache;
    assert.deepEqual(budget("4GiB"), { bytes: 4 * 2 ** 30 });
    assert.deepEqual(budget("1.5GB"), { bytes: 1_500_000_000 });
    assert.deepEqual(budget("65536tokens"), { tokens: 65536 });
    for (const given of ["auto", "4", "0GiB", "-1GiB", "1.5tokens", "0tokens", "4gi", "GiB", "1e3MB"]) {
      assertRefused(
        { flags: { "--kv-cache": given } },
        `--kv-cache expects an amount of memory such as 4GiB or 65536tokens; got "${given}"`,
      );
    }
  });

  it("of byte sizes are numbers with a unit, plain numbers, or 0 for none", () => {
    const swap = (given: string) => resolve({ flags: { "--kv-swap": given } }).troupe.kvSwap;
    assert.deepEqual(["512MiB", "1.5GB", "4096", "0", "0MiB"].map(swap), [512 * 2 ** 20, 1_500_000_000, 4096, 0, 0]);
    for (const given of ["4gi", "-1GiB", "many", "4tokens", "1e30GiB", "9007199254740993", "constructor"]) {
      assertRefused({ flags: { "--kv-swap": given } }, /^--kv-swap expects an amount of bytes such as 512MiB or 4GiB/);
    }
    assert.equal(resolve({ flags: { "--max-audio-bytes": "49MiB" } }).speech.maxAudioBytes, 49 * 2 ** 20);
    // No request body is that large.
    assertRefused(
      { flags: { "--max-audio-bytes": "50MiB" } },
      /^--max-audio-bytes expects an amount of bytes of 1024 to 49MiB/,
    );
    const { kvSwap, prefixCacheDir, prefixCacheDisk } = resolve({}).troupe;
    assert.deepEqual([kvSwap, prefixCacheDir, prefixCacheDisk], [2 ** 30, null, 4 * 2 ** 30]);
  });

  it("that are wrong are rejected with the expected and the given value", () => {
    const cases: [Record<string, string>, string | RegExp][] = [
      [{ "--port": "70000" }, "--port expects a whole number from 0 to 65535; got 70000"],
      [{ "--keep-alive-interval": "2147483648" }, /from 1 to 2147483647; got 2147483648$/],
      [{ "--stalled-reader-secs": "2147484" }, /from 1 to 2147483; got 2147484$/],
      [{ "--load-timeout-secs": "2147484" }, /from 1 to 2147483; got 2147484$/],
      [{ "--shutdown-deadline-secs": "2147484" }, /from 0 to 2147483; got 2147484$/],
      [{ "--port": "80x" }, '--port expects a whole number from 0 to 65535; got "80x"'],
      [{ "--max-seqs": "0" }, "--max-seqs expects a whole number from 1 to 4096; got 0"],
      [
        { "--max-num-batched-tokens": "0" },
        "--max-num-batched-tokens expects a whole number from 1 to 1048576, such as 8192 or 8K; got 0",
      ],
      [
        { "--max-num-batched-tokens": "9007199254740991" },
        /from 1 to 1048576, such as 8192 or 8K; got 9007199254740991$/,
      ],
      [
        { "--max-prefill-chunk-tokens": "0" },
        "--max-prefill-chunk-tokens expects a whole number, at least 1, such as 8192 or 8K; got 0",
      ],
      [
        { "--max-decode-steps-before-prefill": "1.5" },
        "--max-decode-steps-before-prefill expects a whole number, at least 1; got 1.5",
      ],
      [{ "--access-log-format": "xml" }, '--access-log-format expects one of text, json; got "xml"'],
      [
        { "--otlp-endpoint": "collector:4318" },
        "--otlp-endpoint expects a URL of http or https; got another value, not shown here",
      ],
      [{ "--host": "" }, '--host expects an address; got ""'],
      [{ "--mmap": "no" }, '--mmap expects true or false; got "no"'],
      [{ "--decode-slowdown": "1" }, "--decode-slowdown expects a number above 1; got 1"],
      [{ "--paged-attn": "yes" }, '--paged-attn expects one of auto, on, off; got "yes"'],
      [{ "--gpu-memory-utilization": "0" }, "--gpu-memory-utilization expects a number above 0 and at most 1; got 0"],
      [{ "--gpu-memory-utilization": "1.1" }, /a number above 0 and at most 1; got 1.1$/],
      [
        { "--prefix-cache-dir": "/kv", "--prefix-cache-disk": "0" },
        "--prefix-cache-disk expects an amount of bytes such as 512MiB or 4GiB; got 0",
      ],
    ];
    for (const [flags, message] of cases) assertRefused({ flags }, message);
  });

  it("of the environment are checked too", () => {
    assertRefused(
      { environment: { KEEP_ALIVE_INTERVAL: "soon" } },
      /^environment: KEEP_ALIVE_INTERVAL expects a whole number/,
    );
    assert.equal(resolve({ environment: { KEEP_ALIVE_INTERVAL: "" } }).troupe.keepAliveInterval, 10_000);
  });
});

describe("an amount of memory", () => {
  it("is taken as people write it", () => {
    const bytesOf = (given: string) => resolve({ flags: { "--kv-cache": given } }).pagedAttn.kvCache;
    for (const given of ["4GiB", "4gib", "4 GiB", "4G", "4g", "4096M", "4096MiB"]) {
      assert.deepEqual(bytesOf(given), { bytes: 4 * 2 ** 30 }, given);
    }
    for (const given of ["4GB", "4gb", "4000 MB", "4000mb"]) assert.deepEqual(bytesOf(given), { bytes: 4e9 }, given);
    assert.equal(resolve({ flags: { "--kv-swap": "512m" } }).troupe.kvSwap, 512 * 2 ** 20);
  });
});

describe("RUST_LOG", () => {
  const levelOf = (given: string) => resolve({ environment: { RUST_LOG: given } }).troupe.logLevel;

  it("is a level, or directives of which the one for troupe takes precedence", () => {
    assert.equal(levelOf("debug"), "debug");
    assert.equal(levelOf("WARN"), "warn");
    assert.equal(levelOf("off"), "silent");
    assert.equal(levelOf("troupe=trace"), "trace");
    assert.equal(levelOf("troupe=debug, error"), "debug");
    assert.equal(levelOf("error,troupe=debug"), "debug");
  });

  it("is rejected if it names another program or no level", () => {
    for (const given of ["loud", "troupe=loud", "hyper=debug", "warn,hyper=debug", "troupe=", ",", "troupe=debug/x"]) {
      assertRefused(
        { environment: { RUST_LOG: given } },
        /^environment: RUST_LOG expects one of silent, error, warn, info, debug, trace, or troupe=LEVEL; got /,
      );
    }
  });
});

describe("a token", () => {
  it("is quoted by no message", () => {
    const token = "literal:hf_secret";
    const texts = [
      `token_sorce = "${token}"`,
      `[server]\ntoken_source = "${token}"`,
      `token_source = "${token}\nseed = 1`,
      `token_source = ["${token}"]`,
      `token_source = "${token}"\nmatformer_slice_name = "s"`,
    ];
    for (const line of texts) {
      assert.throws(
        () => resolve({ text: `command = "serve"\n${line}${oneModel}` }),
        (error: Error) => error.name === "ServerError" && !`${error.stack}${error.cause}`.includes("hf_secret"),
        line,
      );
    }
    assert.equal(resolve({ flags: { "--token-source": token } }).tokenSource, token);
    assertRefused(
      { flags: { "--token-source": "hf_secret" } },
      "--token-source expects one of literal:TOKEN, env:VARIABLE, path:FILE, cache, none; got another value, not shown here",
    );
  });
});

describe("a TOML file", () => {
  it("that is not TOML is rejected with line, column and the line itself", () => {
    assertRefused({ text: 'command = "serve"\nx = [\n' }, /^troupe\.toml:\d+:\d+: not TOML: [\s\S]*x = \[/);
    for (const secret of [
      '[troupe]\nstate_url = "redis://:pass@host"',
      '[server]\napi_key = "pass"',
      '[models.remote]\nurl = "http://user:pass@host"',
    ]) {
      assertRefused({ text: `command = "serve"\n${secret}\nx =\n` }, /^troupe\.toml:\d+:\d+: not TOML: invalid value$/);
    }
  });

  it("names its command", () => {
    assert.equal(parseToml('command = "run"', "f").command, "run");
    assert.throws(() => parseToml("seed = 1", "f"), { message: 'f:1: command expects "serve" or "run"; got none' });
    assert.throws(() => parseToml('\ncommand = "go"', "f"), {
      message: 'f:2: command expects "serve" or "run"; got "go"',
    });
  });
});
