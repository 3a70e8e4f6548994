// Registry of the architectures that the wasm engine runs. Used when a model file is read.
import { ServerError } from "../../../../runtime/errors.ts";
import type { Architecture } from "./architecture.ts";
import { bert } from "./bert.ts";
import { ernie45 } from "./ernie4-5.ts";
import { euroBert, neoBert } from "./eurobert.ts";
import { gemma } from "./gemma.ts";
import { gemma2 } from "./gemma2.ts";
import { gemma3, gemmaEmbedding } from "./gemma3.ts";
import { granite, graniteMoe } from "./granite.ts";
import { jinaBertV2 } from "./jina-bert-v2.ts";
import { llama } from "./llama.ts";
import { mistral3 } from "./mistral3.ts";
import { modernBert } from "./modern-bert.ts";
import { jinaBertV3, nomicBert, nomicBertMoe } from "./nomic-bert.ts";
import { olmo2 } from "./olmo2.ts";
import { olmoe } from "./olmoe.ts";
import { phi3 } from "./phi3.ts";
import { qwen2 } from "./qwen2.ts";
import { qwen2vl } from "./qwen2vl.ts";
import { qwen3 } from "./qwen3.ts";
import { qwen3moe } from "./qwen3moe.ts";
import { qwen3vl, qwen3vlMoe } from "./qwen3vl.ts";
import { smollm3 } from "./smollm3.ts";
import { stablelm } from "./stablelm.ts";

export const architectures: readonly Architecture[] = [
  llama,
  mistral3,
  smollm3,
  ernie45,
  qwen2,
  qwen2vl,
  qwen3,
  qwen3moe,
  qwen3vl,
  qwen3vlMoe,
  gemma,
  gemma2,
  gemma3,
  phi3,
  granite,
  graniteMoe,
  olmo2,
  olmoe,
  stablelm,
  bert,
  nomicBert,
  nomicBertMoe,
  modernBert,
  jinaBertV2,
  jinaBertV3,
  euroBert,
  neoBert,
  gemmaEmbedding,
];

/** Returns the architecture with this name. Throws `unsupported` with the list of known names. */
export function findArchitecture(name: string): Architecture {
  const found = architectures.find((architecture) => architecture.name === name);
  if (found) return found;
  const known = architectures.map((architecture) => architecture.name).join(", ");
  throw new ServerError(
    "unsupported",
    `the wasm engine does not run the architecture "${name}"; it runs ${known}: use --engine llama for this model`,
    { param: "engine" },
  );
}
