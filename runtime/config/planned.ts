// Owns the names of the contract's keys and flags whose feature is not built yet. Whoever uses one is told so by name: a
// setting is never ignored. A key leaves this list in the change that builds its feature and enters keys.ts.

/** By section of a TOML file: `name` or `name flag…`, where the flags are not simply the name with dashes. */
const plannedBySection: Readonly<Record<string, readonly string[]>> = {
  "": [
    "thinking",
    "enable_thinking",
    "reasoning_effort",
    "adapter",
    "log --log -l",
    "token_source",
    "no_kv_cache",
    "prefix_cache_n",
    "matformer_config_path",
    "matformer_slice_name",
    "mtp_model",
    "mtp_n_predict",
    "mtp_draft_sampling",
    "mcp_config",
    "agent",
    "agentic",
    "enable_search",
    "search_embedding_model",
    "enable_code_execution",
    "code_exec_python",
    "code_exec_timeout",
    "code_exec_workdir",
    "enable_shell",
    "shell_path",
    "shell_timeout",
    "shell_workdir",
    "skills_dir",
    "agent_permission",
    "code_exec_permission",
  ],
  server: ["no_ui", "mcp_port", "max_tool_rounds", "tool_dispatch_url", "disable_metrics"],
  paged_attn: ["mode --paged-attn", "gpu_memory_utilization", "block_size --pa-block-size"],
  sandbox: [
    "mode --sandbox",
    "profile --sandbox-profile",
    "max_memory_mb",
    "max_cpu_secs",
    "max_procs",
    "network --sandbox-network",
  ],
  models: [
    "tokenizer --tokenizer -t",
    "arch --arch -a",
    "dtype",
    "hf_overrides",
    "matformer_config_path",
    "matformer_slice_name",
  ],
  "models.format": ["format", "quantized_file --quantized-file -f", "mmproj", "tok_model_id", "gqa"],
  "models.adapter": [
    "enable_lora",
    "lora --lora --lora-modules",
    "lora_max_adapters",
    "lora_max_rank",
    "lora_max_bytes",
    "legacy_lora",
    "legacy_lora_order",
    "xlora",
    "xlora_order",
    "tgt_non_granular_index",
  ],
  "models.quantization": ["quant", "isq", "from_uqff", "isq_organization", "imatrix", "calibration_file"],
  "models.device": ["device_layers --device-layers -n", "topology", "hf_cache"],
  "models.multimodal": ["max_edge", "max_num_images", "max_image_length"],
};

/** Flags of the run command that have no key. */
const plannedFlagsWithoutKey = ["--input", "-i", "--image", "--video", "--audio"];

/** Environment variables of the contract that stand for a planned key. */
export const plannedEnvironment: readonly string[] = ["MCP_CONFIG_PATH", "SERVICE_SANDBOX"];

const plannedSections = new Map<string, ReadonlySet<string>>();
const flags = new Set<string>(plannedFlagsWithoutKey);
for (const [section, entries] of Object.entries(plannedBySection)) {
  const names = new Set<string>();
  for (const entry of entries) {
    const [name = "", ...own] = entry.split(" ");
    names.add(name);
    for (const flag of own.length > 0 ? own : [`--${name.replaceAll("_", "-")}`]) flags.add(flag);
  }
  plannedSections.set(section, names);
}

export const plannedFlags: ReadonlySet<string> = flags;

/** The planned keys of a section of a TOML file; undefined where it has none. */
export function plannedKeys(section: string): ReadonlySet<string> | undefined {
  return plannedSections.get(section);
}

export function notSupportedYet(name: string): string {
  return `"${name}" is not supported yet by this version of troupe`;
}
