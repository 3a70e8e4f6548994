// MiniCPM-V: its text model is Llama (version 2.5) or Qwen 2 (version 2.6).
import type { Config } from "../config.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { llama } from "./llama.ts";
import { qwen2 } from "./qwen2.ts";

/** Returns the version. The configs of 2.5 do not name it. */
export function minicpmVersion(config: Config): "2.5" | "2.6" {
  const version = String(config.value("version") ?? (config.value("query_num") === 96 ? "2.5" : "2.0"));
  if (version === "2.5" || version === "2.6") return version;
  throw config.unsupported(
    "version",
    version,
    "MiniCPM-V 2.5 and 2.6 from safetensors, other versions from GGUF files",
  );
}

const classes = ["MiniCPMV"];
const prefixes = ["llm."];

export const minicpmLlama: CheckpointArchitecture = {
  ...llama,
  classes,
  prefixes,
  applies: (config) => minicpmVersion(config) === "2.5",
  pools: false,
};

export const minicpmQwen: CheckpointArchitecture = { ...qwen2, classes, prefixes, pools: false };
