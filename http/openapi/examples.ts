// Examples of the API document, by operation: a request body, path parameters, or, for requests without these, a response.
// Tests parse the examples with the schemas of the operation.

export interface Example {
  readonly body?: unknown;
  /** Path parameters by name. */
  readonly path?: Readonly<Record<string, string>>;
  /** Response with status 200. */
  readonly answer?: unknown;
}

const response_id = `resp_${"0123456789abcdef".repeat(2)}`;
const session_id = `sess_${"0123456789abcdef".repeat(2)}`;
const container_id = `cntr_${session_id}`;
const file = {
  id: `file-${"0123456789abcdef".repeat(2)}`,
  object: "file",
  bytes: 8,
  created_at: 1_790_000_000,
  expires_at: 1_790_001_800,
  filename: "table.csv",
  purpose: "user_data",
  status: "processed",
  format: "csv",
  mime_type: "text/csv",
  source: { tool: "user_upload", round: 0, turn: 0 },
};
const skill = {
  id: `skill_${"0123456789abcdef".repeat(2)}`,
  object: "skill",
  created_at: 1_790_000_000,
  name: "haiku",
  description: "Writes haiku.",
  latest_version: 1,
  default_version: 1,
};
const skillFile = "---\nname: haiku\ndescription: Writes haiku.\n---\nCount the syllables.\n";
const generation = "5a".repeat(32);
const model = {
  id: "default",
  object: "model",
  created: 1_790_000_000,
  owned_by: "local",
  status: "loaded",
  tools_available: true,
};
const system = {
  os: "Debian GNU/Linux 13",
  kernel: "6.12.0",
  cpu: { brand: "CPU", logical_cores: 8, physical_cores: 4, avx: true, avx2: true, avx512: false, fma: true },
  memory: { total_bytes: 2 ** 34, available_bytes: 2 ** 33 },
  devices: [{ kind: "cpu", ordinal: 0, name: "CPU", total_memory_bytes: 2 ** 34, available_memory_bytes: 2 ** 33 }],
  build: {
    version: "0.1.0",
    git_revision: "unknown",
    cuda: false,
    metal: false,
    cudnn: false,
    flash_attn: false,
    flash_attn_v3: false,
    cutile: false,
    accelerate: false,
    mkl: false,
  },
  hf_cache_path: "/home/user/.cache/huggingface/hub",
  engines: [{ model: "default", engine: "wasm", reason: "set by configuration", trial: null }],
};
const calibration = {
  collecting: true,
  layers: 210,
  layers_tracking: 210,
  total_rows: 215_040,
  min_rows: 1024,
  max_rows: 1024,
};
const adapter = { id: "my-adapter", object: "lora_adapter", generation, rank: 16, bytes: 2 ** 20 };
const ollamaModel = {
  name: "qwen3-0.6b",
  model: "qwen3-0.6b",
  size: 639_446_688,
  digest: "5a".repeat(32),
  details: {
    parent_model: "",
    format: "gguf",
    family: "qwen3",
    families: ["qwen3"],
    parameter_size: "596.05M",
    quantization_level: "Q8_0",
  },
};
const question = [{ role: "user", content: "What is the capital of France?" }];
const weather = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

export const examples: Readonly<Record<string, Example>> = {
  getHealth: { answer: "OK" },
  getRoot: { answer: "OK" },
  getReady: { answer: "OK" },
  showDocs: { answer: "<!doctype html>" },
  redirectToUi: { answer: "" },
  showUi: { answer: "<!doctype html>" },
  getUiFile: { path: { file: "index.html" } },
  getDocsAsset: { path: { asset: "start.js" } },
  getApiDocument: {
    answer: { openapi: "3.1.0", info: { title: "troupe", version: "0.9.5" }, paths: {}, components: {} },
  },
  getMetrics: { answer: 'http_requests_total{method="GET",path="/v1/models",model="none",status="200"} 1\n' },
  systemInfo: { answer: system },
  systemDoctor: {
    answer: { system, checks: [{ name: "memory", status: "ok", message: "8 GiB are available" }] },
  },
  systemConfig: {
    answer: {
      object: "list",
      data: [
        { key: "port", section: "server", model: null, value: 8080, source: "flag", name: "--port", place: null },
        { key: "max_seqs", section: "", model: null, value: 32, source: "default", name: null, place: null },
      ],
    },
  },
  listResponses: {
    answer: {
      object: "list",
      data: [
        {
          id: "resp_5f2c",
          object: "response.summary",
          created_at: 1_764_200_000,
          status: "completed",
          model: "default",
          background: false,
          input: "What is the capital of France?",
          output: "Paris.",
        },
      ],
      first_id: "resp_5f2c",
      last_id: "resp_5f2c",
      has_more: false,
    },
  },
  listSessions: {
    answer: {
      object: "list",
      data: [
        {
          id: "sess_7a1d",
          object: "session",
          turns: 2,
          messages: 4,
          files: 1,
          last_used_at: 1_764_200_000,
          bytes: 5120,
        },
      ],
      first_id: "sess_7a1d",
      last_id: "sess_7a1d",
      has_more: false,
    },
  },
  listRequests: {
    answer: {
      object: "list",
      data: [
        {
          id: "4b3f0e6c",
          path: "/v1/chat/completions",
          model: "default",
          client: "127.0.0.1",
          stream: true,
          state: "generating",
          received_at: 1_764_200_000,
          prompt_tokens: 32,
          completion_tokens: 7,
        },
      ],
      has_more: false,
    },
  },
  cancelRequest: {
    path: { request_id: "4b3f0e6c" },
    answer: { id: "4b3f0e6c", object: "request", cancelled: true },
  },
  listModels: { answer: { object: "list", data: [model] } },
  modelFile: { path: { model: "default" } },
  webModelFile: { path: { model: "Qwen3-0.6B-q4f32_1-MLC", file: "params_shard_0.bin" } },
  listWebModels: {
    answer: {
      object: "list",
      data: [
        {
          id: "Qwen3-0.6B-q4f32_1-MLC",
          object: "web_model",
          bytes: 33_558_528,
          files: [
            { name: "mlc-chat-config.json", bytes: 4096 },
            { name: "params_shard_0.bin", bytes: 33_554_432 },
          ],
        },
      ],
    },
  },
  retrieveModel: { path: { model: "default" } },
  createChatCompletion: { body: { messages: question, max_tokens: 100 } },
  createCompletion: { body: { prompt: "Once upon a time", max_tokens: 100 } },
  createEmbedding: { body: { input: ["a text", "another text"] } },
  createImage: { body: { prompt: "a red cat on a mat, watercolour", size: "512x512", seed: 7, steps: 20 } },
  createSpeech: { body: { input: "Good morning. It is half past eight.", voice: "alloy", response_format: "wav" } },
  listVoices: {
    answer: {
      object: "list",
      data: [
        {
          id: "en_US-joe-medium",
          object: "voice",
          model: "voice",
          language: "en-us",
          openai_voices: ["alloy", "ash"],
        },
      ],
    },
  },
  createTranscription: { body: { file: "RIFF…", response_format: "verbose_json", language: "en" } },
  createTranslation: { body: { file: "RIFF…", response_format: "srt" } },
  createReranking: { body: { query: "capital of France", documents: ["Paris is the capital.", "Cats sleep."] } },
  createRerankingShort: {
    body: { query: "capital of France", documents: ["Paris is the capital.", "Cats sleep."], top_n: 1 },
  },
  tokenize: { body: { content: "Hello world" } },
  detokenize: { body: { tokens: [1, 2, 3] } },
  createMessage: {
    body: {
      messages: question,
      max_tokens: 100,
      tools: [{ name: "get_weather", description: "The weather of a city", input_schema: weather }],
    },
  },
  countMessageTokens: { body: { messages: question } },
  createResponse: { body: { input: "What is the capital of France?", max_output_tokens: 100 } },
  compactResponse: { body: { model: "default", input: question } },
  countResponseInputTokens: { body: { input: "What is the capital of France?" } },
  retrieveResponse: { path: { response_id } },
  deleteResponse: { path: { response_id } },
  cancelResponse: { path: { response_id } },
  listResponseInputItems: { path: { response_id } },
  uploadFile: { body: { file: "a,b\n1,2\n", purpose: "user_data" } },
  listFiles: { answer: { object: "list", data: [file], first_id: file.id, last_id: file.id, has_more: false } },
  retrieveFile: { path: { file_id: file.id } },
  deleteFile: { path: { file_id: file.id } },
  downloadFile: { path: { file_id: file.id } },
  listContainerFiles: { path: { container_id } },
  retrieveContainerFile: { path: { container_id, file_id: file.id } },
  downloadContainerFile: { path: { container_id, file_id: file.id } },
  createSkill: { body: { files: [skillFile], display_title: "Haiku" } },
  listSkills: {
    answer: { object: "list", data: [skill], first_id: skill.id, last_id: skill.id, has_more: false },
  },
  retrieveSkill: { path: { skill_id: skill.id } },
  deleteSkill: { path: { skill_id: skill.id } },
  downloadSkill: { path: { skill_id: skill.id } },
  createSkillVersion: { path: { skill_id: skill.id }, body: { files: [skillFile] } },
  listSkillVersions: { path: { skill_id: skill.id } },
  retrieveSkillVersion: { path: { skill_id: skill.id, version: "1" } },
  deleteSkillVersion: { path: { skill_id: skill.id, version: "1" } },
  downloadSkillVersion: { path: { skill_id: skill.id, version: "latest" } },
  exportSession: { path: { session_id } },
  importSession: {
    path: { session_id },
    body: {
      version: 1,
      turns: 1,
      messages: [
        { role: "user", content: "What is 2 + 2?", visible: 0 },
        { role: "assistant", content: "4", visible: 1 },
      ],
      images: [],
      videos: [],
      files: [],
    },
  },
  deleteSession: { path: { session_id } },
  decideApproval: { path: { approval_id: `appr_${"0123456789abcdef".repeat(2)}` }, body: { decision: "approve" } },
  listTools: {
    answer: {
      object: "list",
      data: [
        {
          object: "agent.tool",
          name: "search_issues",
          description: "Search the issues of a repository.",
          group: null,
          server_label: "github",
        },
      ],
    },
  },
  listApprovals: { answer: { object: "list", data: [] } },
  showModelStatus: { body: { model_id: "default" } },
  reloadModel: { body: { model_id: "default" } },
  tuneModel: { body: { model_id: "default", profile: "balanced", requested_isq: "Q4K" } },
  unloadModel: { body: { model_id: "default" } },
  requantizeModel: { body: { ggml_type: "Q4K" } },
  startCalibration: {
    body: {},
    answer: { ...calibration, layers_tracking: 0, total_rows: 0, min_rows: 0, max_rows: 0 },
  },
  showCalibration: { answer: calibration },
  applyCalibration: { body: { save_cimatrix: "traffic.gguf" }, answer: calibration },
  listLoraAdapters: {
    answer: {
      object: "list",
      data: [adapter],
      failed: [],
      generations: [
        { generation, aliases: ["my-adapter"], rank: 16, bytes: 2 ** 20, retired: false, active_leases: 0 },
      ],
      resident_generations: 1,
      retired_generations: 0,
      resident_bytes: 2 ** 20,
      max_adapters: 16,
      max_rank: 256,
      max_bytes: 2 ** 33,
    },
  },
  loadLoraAdapter: { body: { lora_name: "my-adapter", lora_path: "adapters/my-adapter" } },
  unloadLoraAdapter: { body: { lora_name: "my-adapter" } },
  ollamaChat: { body: { model: "default", messages: question, options: { temperature: 0 } } },
  ollamaGenerate: { body: { model: "default", prompt: "What is the capital of France?", stream: false } },
  ollamaEmbed: { body: { model: "default", input: ["a text", "another text"] } },
  ollamaEmbedding: { body: { model: "default", prompt: "a text" } },
  ollamaTags: { answer: { models: [{ ...ollamaModel, modified_at: "2026-11-25T12:00:00.000Z" }] } },
  ollamaRunning: {
    answer: { models: [{ ...ollamaModel, expires_at: "9999-12-31T23:59:59Z", context_length: 4096 }] },
  },
  ollamaShow: { body: { model: "default" } },
  ollamaPull: { body: { model: "smollm2-135m-instruct", stream: false }, answer: { status: "success" } },
  ollamaDelete: { body: { model: "smollm2-135m-instruct" }, answer: {} },
  listModelDownloads: {
    answer: {
      data: [
        {
          model: "owner/name:Q4_K_M",
          status: "download owner/name:Q4_K_M",
          done_bytes: 1_048_576,
          total_bytes: 104_857_600,
        },
      ],
    },
  },
  ollamaVersion: { answer: { version: "0.14.2" } },
  mcp: { body: { jsonrpc: "2.0", id: 1, method: "tools/list" } },
};
