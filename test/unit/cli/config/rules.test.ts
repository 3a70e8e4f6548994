import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { assertRefused, oneModel, resolve } from "./resolve.ts";

const withTop = (lines: string) => `command = "serve"\n${lines}${oneModel}`;
const withModel = (lines: string) => `command = "serve"${oneModel}${lines}\n`;

describe("the startup rules", () => {
  it("expect a model in a file", () => {
    assertRefused({ text: 'command = "serve"\n' }, /^troupe.toml: expected at least one model/);
    assertRefused(
      { text: 'command = "serve"\n[[models]]\nkind = "text"\n' },
      "troupe.toml:2: [[models]] expects a model_id; got none",
    );
  });

  it("accept an alias as the name of a model", () => {
    const names = (request: Parameters<typeof resolve>[0]) =>
      resolve(request).models.map(({ id, modelId }) => [id, modelId]);
    const two = { "--model-id": ["a", "b"] };
    assert.deepEqual(names({ flags: { ...two, "--alias": ["x", "y"] } }), [
      ["x", "a"],
      ["y", "b"],
    ]);
    assert.deepEqual(names({ flags: { "--alias": ["x"] } }), [["x", "the-default"]]);
    const text = `command = "serve"\ndefault_model_id = "big"${oneModel}[[models]]\nmodel_id = "b"\nalias = "big"\n`;
    assert.deepEqual(names({ text }), [
      ["a", "a"],
      ["big", "b"],
    ]);
    assert.equal(resolve({ text }).defaultModelId, "big");
    assertRefused(
      { flags: { ...two, "--alias": ["x"] } },
      "--alias expects one name for each model, in order; got 1 for 2 models",
    );
    assertRefused({ flags: { ...two, "--alias": ["x", "x"] } }, /^two models have the name "x"/);
    const byDefault = (wanted: string, ...aliases: string[]) =>
      resolve({ flags: { ...two, "--alias": aliases, "--default-model-id": wanted } }).defaultModelId;
    assert.deepEqual([byDefault("a", "b", "b2"), byDefault("b", "b", "b2"), byDefault("b", "x", "y")], ["b", "b", "y"]);
    assertRefused(
      { flags: { "--model-id": ["a", "a"], "--alias": ["x", "y"], "--default-model-id": "a" } },
      '--default-model-id expects one of "x", "y"; got "a"',
    );
    for (const name of ["default", "a::b", "with space", ""]) {
      assertRefused({ flags: { "--alias": [name] } }, /^--alias expects a name of 1 to 200 printable ASCII characters/);
    }
  });

  it("expect default_model_id to be one of the models", () => {
    const text = `command = "serve"\ndefault_model_id = "b"${oneModel}`;
    assertRefused({ text }, 'troupe.toml:2: default_model_id expects one of "a"; got "b"');
    const both = `${text}[[models]]\nmodel_id = "b"\n`;
    assert.equal(resolve({ text: both }).defaultModelId, "b");
    assert.equal(resolve({ flags: { "--model-id": ["x", "y"] } }).defaultModelId, "x");
  });

  it("expect cpu to be the same for all models that set it, and then apply it to all", () => {
    const models = (...cpu: string[]) =>
      `command = "serve"${cpu.map((line, index) => `\n[[models]]\nmodel_id = "${index}"\n[models.device]\n${line}\n`).join("")}`;
    assertRefused(
      { text: models("cpu = true", "cpu = false") },
      "troupe.toml:10: cpu expects the same value for all models; got false, and at troupe.toml:5 true",
    );
    const { models: resolved } = resolve({ text: models("cpu = true", "") });
    assert.deepEqual(
      resolved.map(({ device }) => device.cpu),
      [true, true],
    );
  });

  it("expect each model once", () => {
    assertRefused(
      { flags: { "--model-id": ["a", "a"] } },
      /^two models have the name "a"; give each its own name with alias/,
    );
  });

  it("expect the MCP server on a separate port, and its settings only with that port", () => {
    assertRefused(
      { flags: { "--port": "8000", "--mcp-port": "8000" } },
      "mcp_port expects another port than port; got 8000 for both",
    );
    assert.equal(resolve({ flags: { "--port": "0", "--mcp-port": "0" } }).server.mcpPort, 0);
    for (const flag of ["--allowed-hosts", "--mcp-allowed-hosts"]) {
      const needed = `"${flag}" requires "--mcp-port" or "--cors-origins"; got none`;
      assertRefused({ flags: { [flag]: ["a.example"] } }, needed);
      for (const other of [{ "--mcp-port": "1" }, { "--cors-origins": ["https://a.example"] }]) {
        const { troupe } = resolve({ flags: { ...other, [flag]: ["a.example"] } });
        assert.deepEqual([troupe.allowedHosts].flat(), ["a.example"]);
      }
    }
  });

  it("expect a reverse proxy as an address or a range of addresses", () => {
    const ranges = ["127.0.0.1", "10.0.0.0/8", "fd00::/8"];
    assert.deepEqual([resolve({ flags: { "--trusted-proxies": ranges } }).troupe.trustedProxies].flat(), ranges);
    for (const wrong of ["proxy.example", "10.0.0.0/33", "10.0.0.0/", "::/129", "10.0.0.0/8/8", "127.0.0.1:80"]) {
      assertRefused(
        { flags: { "--trusted-proxies": [wrong] } },
        /--trusted-proxies expects an IP address or a range in CIDR/,
      );
    }
  });

  it("expect each origin as a browser sends it", () => {
    const { troupe } = resolve({ flags: { "--cors-origins": ["https://a.example:8443", "app://obsidian.md"] } });
    assert.deepEqual(troupe.corsOrigins, ["https://a.example:8443", "app://obsidian.md"]);
    for (const wrong of ["*", "a.example", "https://a.example/", "HTTPS://a.example", "https://a.example/chat"]) {
      assertRefused({ flags: { "--cors-origins": [wrong] } }, /--cors-origins expects an origin in lower case/);
    }
  });

  it("expect a depth above 0 when the benchmark generates", () => {
    assertRefused({ command: "bench", flags: { "--depth": "0,4" } }, /^--depth expects numbers above 0/);
    const { bench } = resolve({ command: "bench", flags: { "--depth": "0", "--gen-len": "0", "--prompt-len": "1,2" } });
    assert.deepEqual([bench.depth, bench.promptLen], [[0], [1, 2]]);
  });

  it("let tuning choose the quantization, which quant = auto would", () => {
    const auto = /"--quant" = "auto" conflicts with tune, which chooses the quantization; remove it/;
    assertRefused({ command: "tune", flags: { "--quant": "auto" } }, auto);
    const { tune } = resolve({ command: "tune", flags: { "--profile": "fast" } });
    assert.deepEqual(tune, { profile: "fast", budget: 60, emitConfig: null });
  });

  it("accept a key only together with one that it needs, planned or not", () => {
    const cases: [text: string, message: string][] = [
      [
        withTop('search_embedding_model = "embedding-gemma"'),
        '"search_embedding_model" requires "enable_search" or "agent"',
      ],
      [withTop("code_exec_timeout = 5"), '"code_exec_timeout" requires "enable_code_execution" or "agent"'],
      [
        withTop('code_exec_python = "python"\nenable_code_execution = false'),
        '"code_exec_python" requires "enable_code_execution" or "agent"',
      ],
      [
        withTop('code_exec_workdir = "/w"\nenable_shell = true'),
        '"code_exec_workdir" requires "enable_code_execution" or "agent"',
      ],
      [withTop('shell_path = "/bin/sh"'), '"shell_path" requires "enable_shell" or "agent"'],
      [withTop("shell_timeout = 5"), '"shell_timeout" requires "enable_shell" or "agent"'],
      [withTop('shell_workdir = "/w"'), '"shell_workdir" requires "enable_shell" or "agent"'],
      [withTop('skills_dir = "/s"'), '"skills_dir" requires "enable_shell" or "agent"'],
      [withTop('matformer_slice_name = "s"'), '"matformer_slice_name" requires "matformer_config_path"'],
    ];
    for (const [text, message] of cases) assertRefused({ text }, `troupe.toml:2: ${message}; got none`);
    assertRefused(
      { text: withModel('matformer_slice_name = "s"') },
      'troupe.toml:4: "matformer_slice_name" requires "matformer_config_path"; got none',
    );
    assertRefused(
      { text: withModel("[models.adapter]\ntgt_non_granular_index = 1") },
      'troupe.toml:5: "tgt_non_granular_index" requires "xlora"; got none',
    );
    assertRefused(
      { text: withTop('[troupe]\nprefix_cache_disk = "1GiB"') },
      'troupe.toml:3: "prefix_cache_disk" requires "prefix_cache_dir"; got none',
    );
    for (const flag of ["--image", "--video", "--audio"]) {
      assertRefused({ command: "run", flags: { [flag]: ["f"] } }, `"${flag}" requires "--input"; got none`);
    }
    // A model-specific matformer_slice_name uses the general matformer_config_path.
    const text = `${withTop('matformer_config_path = "c.csv"')}matformer_slice_name = "s"\n`;
    const [{ matformerConfigPath, matformerSliceName } = {}] = resolve({ text }).models;
    assert.deepEqual([matformerConfigPath, matformerSliceName], ["c.csv", "s"]);
  });

  it("reject keys that exclude one another, naming both and their lines", () => {
    const paged = (lines: string) => withTop(`[paged_attn]\n${lines}`);
    const model = (section: string, lines: string) => withModel(`[models.${section}]\n${lines}`);
    const cases: [text: string, message: string][] = [
      [
        paged('gpu_memory_utilization = 0.5\nkv_cache = "1GiB"'),
        '4: "kv_cache" conflicts with "gpu_memory_utilization" (troupe.toml:3)',
      ],
      [paged('mode = "off"\nkv_cache = "1GiB"'), '3: "mode" = "off" conflicts with "kv_cache" (troupe.toml:4)'],
      [
        paged('mode = "off"\ngpu_memory_utilization = 1'),
        '3: "mode" = "off" conflicts with "gpu_memory_utilization" (troupe.toml:4)',
      ],
      [model("quantization", 'quant = "q4k"\nisq = 4'), '5: "quant" conflicts with "isq" (troupe.toml:6)'],
      [model("quantization", 'quant = 4\nfrom_uqff = "f"'), '5: "quant" conflicts with "from_uqff" (troupe.toml:6)'],
      [
        model("quantization", 'imatrix = "i"\ncalibration_file = "c"'),
        '6: "calibration_file" conflicts with "imatrix" (troupe.toml:5)',
      ],
      [model("adapter", 'enable_lora = true\nxlora = "x"'), '5: "enable_lora" conflicts with "xlora" (troupe.toml:6)'],
      [
        model("adapter", 'enable_lora = true\nlegacy_lora = "x"'),
        '5: "enable_lora" conflicts with "legacy_lora" (troupe.toml:6)',
      ],
      [
        model("adapter", 'lora = [{ alias = "a", source = "s" }]\nxlora = "x"'),
        '5: "lora" conflicts with "xlora" (troupe.toml:6)',
      ],
      [
        model("adapter", 'lora = [{ alias = "a", source = "s" }]\nlegacy_lora = "x"'),
        '5: "lora" conflicts with "legacy_lora" (troupe.toml:6)',
      ],
      [model("adapter", 'legacy_lora = "l"\nxlora = "x"'), '5: "legacy_lora" conflicts with "xlora" (troupe.toml:6)'],
    ];
    for (const [text, message] of cases) assertRefused({ text }, `troupe.toml:${message}; remove one of them`);
    assertRefused(
      { text: withModel('[models.quantization]\nquant = "q4k"'), flags: { "--isq": "4" } },
      'troupe.toml:5: "quant" conflicts with "--isq"; remove one of them',
    );
    assertRefused(
      { flags: { "--paged-attn": "off", "--kv-cache": "1GiB" } },
      '"--paged-attn" = "off" conflicts with "--kv-cache"; remove one of them',
    );
    assertRefused(
      { text: withTop('prefix_cache_n = 0\n[troupe]\nprefix_cache_dir = "/kv"') },
      'troupe.toml:2: "prefix_cache_n" = "0" conflicts with "prefix_cache_dir" (troupe.toml:4); remove one of them',
    );
    for (const mode of ["auto", "on"]) {
      for (const memory of ['kv_cache = "1GiB"', "gpu_memory_utilization = 0.5"]) {
        resolve({ text: paged(`mode = "${mode}"\n${memory}`) });
      }
    }
    resolve({ text: paged('mode = "off"') });
  });

  it("expect each alias of an adapter once, ignoring surrounding white space", () => {
    const lora = (second: string) =>
      withModel(`[[models.adapter.lora]]\nalias = "x"\nsource = "s"\n[[models.adapter.lora]]\n${second}\nsource = "s"`);
    for (const second of ["x", " x "]) {
      assertRefused(
        { text: lora(`alias = "${second}"`) },
        'troupe.toml:4: lora expects each alias once; got "x" twice',
      );
    }
    // One adapter may have two names.
    assert.equal(resolve({ text: lora('alias = "y"') }).models[0]?.adapter.lora.length, 2);
  });

  it("expect limits of adapters, and the order of legacy ones, only with such adapters", () => {
    const adapter = (lines: string) => withModel(`[models.adapter]\n${lines}`);
    for (const [line, others] of [
      ["lora_max_adapters = 4", ""],
      ["lora_max_rank = 8", ' or "legacy_lora" or "xlora"'],
      ["lora_max_bytes = 1000", ' or "legacy_lora" or "xlora"'],
    ] as const) {
      const [name] = line.split(" ");
      assertRefused(
        { text: adapter(line) },
        `troupe.toml:5: "${name}" requires "enable_lora" or "lora"${others}; got none`,
      );
      resolve({ text: adapter(`${line}\nenable_lora = true`) });
      resolve({ text: adapter(`${line}\nlora = [{ alias = "x", source = "s" }]`) });
    }
    // Settings with their default values change nothing, so they are accepted.
    resolve({ text: adapter('lora_max_adapters = 16\nlora_max_bytes = "8GiB"') });
    assertRefused(
      { text: adapter('legacy_lora_order = "o.json"') },
      'troupe.toml:5: "legacy_lora_order" requires "legacy_lora"; got none',
    );
  });

  it("expect the initial adapter to be one of those of the first model", () => {
    const begin = (lora: readonly string[]) => ({
      command: "run" as const,
      flags: { "--adapter": "code", ...(lora.length === 0 ? {} : { "--lora": lora }) },
    });
    assert.equal(resolve(begin(["math=m", "code=c"])).adapter, "code");
    assertRefused(
      begin(["math=m", "Code=c"]),
      '--adapter expects the alias of an adapter in lora: math, Code; got "code"',
    );
    assertRefused(
      begin([]),
      '--adapter expects the alias of an adapter in lora; the model has none: add --lora ALIAS=SOURCE; got "code"',
    );
  });

  it("are checked before unsupported settings, and after wrong values", () => {
    assertRefused(
      { text: withTop('agent = true\ndefault_model_id = "b"') },
      /^troupe\.toml:3: default_model_id expects/,
    );
    assertRefused({ text: withTop('matformer_slice_name = "s"\nseed = -1') }, /^troupe\.toml:3: seed expects/);
  });
});
