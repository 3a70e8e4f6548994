import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { groups, keyEntries } from "../../../../cli/config/keys.ts";
import { assertRefused, oneModel, resolve, textWith } from "./resolve.ts";

/** Configuration with every supported key except those of `run`, each with a supported value. */
const served = `command = "serve"
default_model_id = "chat"
seed = 7
log = "requests.jsonl"
token_source = "env:HUB_TOKEN"
max_seqs = 16
max_num_batched_tokens = 4096
max_prefill_chunk_tokens = 512
max_decode_steps_before_prefill = 8
no_kv_cache = false
prefix_cache_n = 4
chat_template = "t.jinja"
matformer_config_path = "slices.csv"
matformer_slice_name = "t"
jinja_explicit = "e.jinja"
agentic = true
mcp_config = "mcp.json"
enable_search = true
search_embedding_model = "chat"
enable_code_execution = true
code_exec_python = "python3"
code_exec_timeout = 30
code_exec_workdir = "/work"
enable_shell = true
shell_path = "/bin/bash"
shell_timeout = 60
shell_workdir = "/work"
skills_dir = "/skills"
code_exec_permission = "ask"

[server]
host = "127.0.0.1"
port = 0
api_key = ["alpha", "beta"]
api_keys_file = "/etc/troupe/keys"
no_ui = true
mcp_port = 4321
max_tool_rounds = 8
tool_dispatch_url = "http://localhost:1/"
disable_access_log = true
access_log_format = "json"
access_log_health = true
disable_request_id_header = true
disable_metrics = true

[paged_attn]
mode = "auto"
kv_cache = "65536tokens"
block_size = 64
cache_type = "q8_0"

[sandbox]
mode = "on"
profile = "restricted"
max_memory_mb = 512
max_cpu_secs = 100
max_procs = 32
max_disk_mb = 100
network = "none"

[search]
provider = "searxng"
url = "http://localhost:8888"
results = 5

[speech]
threads = 1
max_input_chars = 1000
max_speech_secs = 60
max_audio_bytes = "10MiB"
max_audio_secs = 600

[diffusion]
threads = 2
max_pixels = 262144
max_steps = 50
max_queue = 4
timeout_secs = 300

[troupe]
engine = "llama"
isolate = true
edge = "node"
threads = 2
mmap = false
kv_swap = "512MiB"
encoder_cache = "64MiB"
max_media_bytes_in_flight = "256MiB"
prefix_cache_dir = "/var/cache/troupe"
prefix_cache_disk = 1073741824
state_dir = "/var/lib/troupe"
state_url = "redis://localhost:6379/1"
lease_secs = 5
files_url = "s3://files/troupe?endpoint=http://minio:9000"
restart_background = true
max_stored_responses = 100
stored_response_days = 7
stored_responses_disk = "256MiB"
disable_lists = true
share_model_files = true
web_models = ["/models/web"]
files_disk = "256MiB"
max_background_responses = 8
max_websockets = 100
allow_completions_stream = true
unknown_fields = "refuse"
websocket_idle_secs = 300
websocket_lifetime_secs = 1800
speculation = "auto"
max_draft_tokens = 8
draft_model = "d"
max_queue = 64
queue_timeout_secs = 30
slot_share_secs = 5
max_body_bytes_in_flight = 1048576
text_task_secs = 5
text_task_memory = "512MiB"
text_task_queue = 100
request_timeout_secs = 60
decode_slowdown = 2.5
max_step_ms = 100
frame_interval_ms = 0
max_loaded_models = 2
idle_unload_secs = 600
load_timeout_secs = 60
ready_max_queue = 32
reuse_port = true
shutdown_delay_secs = 5
shutdown_deadline_secs = 5
stalled_reader_secs = 10
keep_alive_interval = 5000
trusted_proxies = ["10.0.0.0/8", "::1"]
allowed_hosts = ["mcp.example"]
cors_origins = ["https://chat.example"]
mcp_max_sessions = 10
mcp_session_idle_secs = 60
tool_dispatch_timeout_secs = 5
otlp_endpoint = "http://localhost:4318"
log_level = "warn"

[[models]]
model_id = "a"
alias = "chat"
kind = "text"
max_model_len = 4096
default_max_tokens = 1000
dtype = "bf16"
hf_overrides = { rope_theta = 1.0 }
chat_template = "m.jinja"
jinja_explicit = "n.jinja"
matformer_config_path = "slices.json"
matformer_slice_name = "s"
arch = "llama"

[models.sampling]
temperature = 0.6
top_k = 20
top_p = 0.9
min_p = 0
repetition_penalty = 1.1
presence_penalty = 0.5
frequency_penalty = -0.5

[models.format]
format = "gguf"
quantized_file = "q4.gguf"
mmproj = "/models/mmproj.gguf"
tok_model_id = "/tokenizer"
gqa = 1

[models.embedding]
pooling = "tokens"
prompts = { query = "q: ", document = "" }

[models.multimodal]
max_edge = 1024
max_num_images = 4
max_num_frames = 8
max_num_audio = 2

[models.adapter]
enable_lora = true
lora = [{ alias = "x", source = "org/x-lora" }, { alias = "z", source = "y", revision = "v2" }]
lora_max_adapters = 4
max_lora_rank = 64
lora_max_bytes = "1GiB"

[models.quantization]
isq = "q4k"
from_uqff = ["q8_0-0.uqff", "q8_0-1.uqff"]
isq_organization = "moqe"
imatrix = "m.imatrix"

[models.device]
cpu = true
device_layers = "0:16;1:8"
topology = "layers.yml"
hf_cache = "/models"
`;

/** Configuration with keys that cannot be combined with those in `served`. */
const others = `command = "serve"\nmtp_model = "m"\nmtp_n_predict = 2\nmtp_draft_sampling = "greedy"\n[paged_attn]\nmode = "on"\ngpu_memory_utilization = 0.9\n[troupe]\nmax_model_downloads = 2\n${oneModel}[models.adapter]\nlegacy_lora = ["m", "n"]\nlegacy_lora_order = "order.json"\n`;
const mixed = `command = "serve"\n${oneModel}tokenizer = "tokenizer.json"\n[models.adapter]\nxlora = "m"\nxlora_order = "order.json"\ntgt_non_granular_index = 1\n[models.quantization]\nquant = "auto"\ncalibration_file = "c.txt"\n`;

const elsewhere = `command = "serve"\n${oneModel}[models.remote]\nurl = ["http://a:1", "https://b/v1"]\nremote_model = "m"\napi_key_env = "KEY"\nbalance = "least"\nupstream_mode = "text"\nremote_retries = 0\nconnect_timeout_secs = 1\nfirst_token_timeout_secs = 9\nstall_timeout_secs = 8\nprobe_interval_secs = 7\n`;

const talked = `command = "run"\nenable_thinking = true\nreasoning_effort = "none"\nadapter = "x"${oneModel}[models.adapter]\nlora = [{ alias = "x", source = "y" }]\n`;

/** Every planned key, with a value that needs the missing feature. A key comes before the keys that it requires. */
const refused: Readonly<Record<string, readonly string[]>> = {
  "[models.multimodal]": ["max_image_length = 1024"],
};

describe("a file with every key of the contract that this build can keep", () => {
  it("is served with its settings", () => {
    const config = resolve({ text: served });
    assert.deepEqual(config.models[0], {
      id: "chat",
      modelId: "a",
      alias: "chat",
      kind: "text",
      maxModelLen: 4096,
      defaultMaxTokens: 1000,
      tokenizer: null,
      dtype: "bf16",
      hfOverrides: { rope_theta: 1 },
      sampling: {
        temperature: 0.6,
        topK: 20,
        topP: 0.9,
        minP: 0,
        repetitionPenalty: 1.1,
        presencePenalty: 0.5,
        frequencyPenalty: -0.5,
      },
      chatTemplate: "m.jinja",
      jinjaExplicit: "n.jinja",
      arch: "llama",
      matformerConfigPath: "slices.json",
      matformerSliceName: "s",
      format: {
        format: "gguf",
        quantizedFile: "q4.gguf",
        mmproj: "/models/mmproj.gguf",
        tokModelId: "/tokenizer",
        gqa: 1,
      },
      embedding: { pooling: "tokens", prompts: { query: "q: ", document: "" } },
      multimodal: { maxEdge: 1024, maxNumImages: 4, maxNumFrames: 8, maxNumAudio: 2 },
      quantization: {
        quant: null,
        isq: "q4k",
        fromUqff: ["q8_0-0.uqff", "q8_0-1.uqff"],
        isqOrganization: "moqe",
        imatrix: "m.imatrix",
        calibrationFile: null,
      },
      adapter: {
        enableLora: true,
        lora: [
          { alias: "x", source: "org/x-lora", revision: "main" },
          { alias: "z", source: "y", revision: "v2" },
        ],
        loraMaxAdapters: 4,
        loraMaxRank: 64,
        loraMaxBytes: 2 ** 30,
        legacyLora: null,
        legacyLoraOrder: null,
        xlora: null,
        xloraOrder: null,
        tgtNonGranularIndex: null,
      },
      device: {
        cpu: true,
        deviceLayers: [
          { device: 0, layers: 16 },
          { device: 1, layers: 8 },
        ],
        topology: "layers.yml",
        hfCache: "/models",
      },
      remote: {
        ...{ url: null, remoteModel: null, apiKeyEnv: null, balance: "prefix", remoteRetries: 2 },
        ...{
          upstreamMode: "tokens",
          connectTimeoutSecs: 5,
          firstTokenTimeoutSecs: 300,
          stallTimeoutSecs: 60,
          probeIntervalSecs: 5,
        },
      },
    });
    assert.deepEqual(config.pagedAttn, {
      mode: "auto",
      gpuMemoryUtilization: null,
      kvCache: { tokens: 65536 },
      blockSize: 64,
      cacheType: "q8_0",
    });
    const { kvSwap, prefixCacheDir, prefixCacheDisk } = config.troupe;
    assert.deepEqual([kvSwap, prefixCacheDir, prefixCacheDisk], [2 ** 29, "/var/cache/troupe", 2 ** 30]);
    const { xlora, xloraOrder, tgtNonGranularIndex } = resolve({ text: mixed }).models[0]?.adapter ?? {};
    assert.deepEqual([xlora, xloraOrder, tgtNonGranularIndex], ["m", "order.json", 1]);
    const { url, balance, probeIntervalSecs } = resolve({ text: elsewhere }).models[0]?.remote ?? {};
    assert.deepEqual([url, balance, probeIntervalSecs], [["http://a:1", "https://b/v1"], "least", 7]);
    assertRefused({ flags: { "--balance": "least" } }, /"--balance" requires "--url"; got none/);
    assertRefused({ flags: { "--url": "http://a", "--isq": "4" } }, /"--url" conflicts with "--isq"/);
    assertRefused(
      { flags: { "--url": "http://me:secret@a" } },
      /--url expects a URL of http or https without a user name/,
    );
    const { mode, gpuMemoryUtilization, kvCache } = resolve({ text: others }).pagedAttn;
    assert.deepEqual([mode, gpuMemoryUtilization, kvCache], ["on", 0.9, null]);
    assert.deepEqual(
      [config.tokenSource, config.troupe.queueTimeoutSecs, config.troupe.maxBodyBytesInFlight],
      ["env:HUB_TOKEN", 30, 1_048_576],
    );
    assert.equal(config.server.accessLogFormat, "json");
  });

  it("is run with its settings, also under the older names of keys", () => {
    const { thinking, reasoningEffort, adapter } = resolve({ command: "run", text: talked });
    assert.deepEqual([thinking, reasoningEffort, adapter], [true, "off", "x"]);
  });

  it("has every supported key, and the list of rejected keys has every planned one", () => {
    const textOf = (section: string) =>
      [served, others, mixed, elsewhere, talked].map((text) => sectionText(text, section)).join("\n");
    for (const { group, names, key } of keyEntries) {
      if (names.length === 0) continue;
      const { section } = groups[group];
      const header = section === "" ? "" : section === "models" ? "[[models]]" : `[${section}]`;
      const isIn = (text: string) => names.some((name) => new RegExp(`^${name} = `, "m").test(text));
      if (!key.planned || key.holds?.length) assert.ok(isIn(textOf(header)), `${header} ${names} is accepted`);
      if (key.planned && key.never === undefined)
        assert.ok(isIn((refused[header] ?? []).join("\n")), `${header} ${names}`);
    }
  });
});

describe("every key", () => {
  it("can be set by a separate variable", () => {
    const names = keyEntries.flatMap(({ variables }) => variables);
    assert.equal(new Set(names).size, names.length);
    const without = keyEntries.filter(({ variables }) => variables.length === 0);
    // Keys without an environment variable exist only per model in a file. Each overrides a general key, which has a variable.
    for (const { key, group } of without) assert.deepEqual([key.only, group], ["file", "models"]);
  });
});

describe("a planned key", () => {
  it("is rejected at its line, with its possible values", () => {
    for (const [header, values] of Object.entries(refused)) {
      for (const lines of values) {
        const text = textWith(header, lines);
        const [name = ""] = lines.split(" ");
        const line = text.slice(0, text.indexOf(lines)).split("\n").length;
        const start = `troupe.toml:${line}: "${name}" has no meaning`;
        assert.throws(
          () => resolve({ text }),
          ({ message }: Error) => message.startsWith(start) || assert.fail(`${message}\nis not\n${start}`),
        );
      }
    }
  });

  it("is refused as a flag too", () => {
    assertRefused({ flags: { "--max-image-length": "512" } }, /^"--max-image-length" has no meaning: .*max_edge/);
    resolve({ flags: { "--prefix-cache-n": "0", "--no-ui": true, "--paged-attn": "auto" } });
  });

  it("has its type checked first", () => {
    assertRefused(
      { text: textWith("", 'prefix_cache_n = "many"') },
      'troupe.toml:3: prefix_cache_n expects a whole number from 0 to 1024; got "many"',
    );
    assertRefused(
      { text: textWith("[sandbox]", "mode = 1") },
      "troupe.toml:3: mode expects one of auto, on, off; got 1",
    );
    assertRefused({ flags: { "--tgt-non-granular-index": "-1" } }, /^--tgt-non-granular-index expects a whole number/);
    assertRefused({ flags: { "--hf-overrides": "{a" } }, '--hf-overrides expects a JSON object; got "{a"');
  });

  it("is rejected only if no value is wrong, even in later lines", () => {
    assertRefused({ text: textWith("", "agent = true\nseed = -1") }, /^troupe\.toml:4: seed expects/);
  });
});

describe("a key that will never be supported", () => {
  it("is refused with the reason, as a final answer", () => {
    const message =
      /^(troupe\.toml:3: )?"(--)?no[-_]kv[-_]cache" has no meaning with continuous batching: .*; remove it, or set it to false$/;
    assertRefused({ text: textWith("", "no_kv_cache = true") }, message);
    assertRefused({ flags: { "--no-kv-cache": true } }, message);
  });
});

describe("block_size", () => {
  it("is a multiple of 4 from 4 to 256", () => {
    const blockSize = (given: string) => resolve({ flags: { "--pa-block-size": given } }).pagedAttn.blockSize;
    assert.deepEqual(["4", "32", "100", "256"].map(blockSize), [4, 32, 100, 256]);
    for (const given of ["0", "2", "30", "257", "260", "-4", "4.5", "many"]) {
      const got = given === "many" ? '"many"' : given;
      assertRefused(
        { flags: { "--pa-block-size": given } },
        `--pa-block-size expects a multiple of 4 from 4 to 256; got ${got}`,
      );
    }
  });
});

describe("a planned value of a supported key", () => {
  it("is rejected as unsupported", () => {
    const cases: [header: string, line: string, subject: string][] = [
      ["[paged_attn]", 'cache_type = "f8e4m3"', 'cache_type: "f8e4m3"'],
    ];
    for (const [header, line, subject] of cases) {
      assertRefused(
        { text: textWith(header, line) },
        `troupe.toml:3: ${subject} is not supported yet by this version of troupe; remove it`,
      );
    }
  });
});

/** Returns the lines of a file directly under a header, or the lines before the first header if `header` is empty. */
function sectionText(text: string, header: string): string {
  const body = header === "" ? text : (text.split(`${header}\n`)[1] ?? "");
  return body.split(/^\[/m)[0] ?? "";
}
