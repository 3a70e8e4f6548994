// Registry of the architectures that can be loaded from a checkpoint.
import type { Config } from "../config.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { bert, bertClassifier, colbert, distilbert, roberta } from "./bert.ts";
import { cohere2, commandR } from "./cohere.ts";
import { deepseek2, deepseek3, glm4MoeLite } from "./deepseek2.ts";
import { dots1, minimaxM2 } from "./dots1.ts";
import { ernie45, ernie45Moe } from "./ernie4-5.ts";
import { euroBert, neoBert } from "./eurobert.ts";
import { exaone4 } from "./exaone4.ts";
import { falconH1 } from "./falcon-h1.ts";
import { gemma } from "./gemma.ts";
import { gemma2 } from "./gemma2.ts";
import { gemma3, gemmaEmbedding } from "./gemma3.ts";
import { gemma3n } from "./gemma3n.ts";
import { gemma4, gemma4Unified } from "./gemma4.ts";
import { glm4, glm4moe } from "./glm4.ts";
import { gptOss } from "./gpt-oss.ts";
import { gpt2, gptNeoX, phi2 } from "./gpt2.ts";
import { granite, graniteMoe } from "./granite.ts";
import { graniteHybrid, graniteHybridDense } from "./granite-hybrid.ts";
import { hunyuanDense, hunyuanMoe } from "./hunyuan.ts";
import { jinaBertV2, jinaBertV3, jinaColbertV2, jinaEmbeddingsV3 } from "./jina-bert.ts";
import { lfm2, lfm2moe } from "./lfm2.ts";
import { arcee, llama, llamaOfImages } from "./llama.ts";
import { llama4 } from "./llama4.ts";
import { mamba, mamba2 } from "./mamba.ts";
import { minicpmLlama, minicpmQwen } from "./minicpm-v.ts";
import { ministral3, mistral3 } from "./mistral3.ts";
import { modernBert } from "./modern-bert.ts";
import { nemotron } from "./nemotron.ts";
import { nemotronH, nemotronHMoe } from "./nemotron-h.ts";
import { nomicBert, nomicBertMoe } from "./nomic-bert.ts";
import { olmo } from "./olmo.ts";
import { olmo2 } from "./olmo2.ts";
import { olmoe } from "./olmoe.ts";
import { phi3 } from "./phi3.ts";
import { qwen2 } from "./qwen2.ts";
import { qwen2moe } from "./qwen2moe.ts";
import { qwen2vl } from "./qwen2vl.ts";
import { qwen3 } from "./qwen3.ts";
import { qwen3moe } from "./qwen3moe.ts";
import { qwen3next, qwen35, qwen35moe } from "./qwen3next.ts";
import { qwen3vl, qwen3vlMoe } from "./qwen3vl.ts";
import { seedOss } from "./seed-oss.ts";
import { smollm3 } from "./smollm3.ts";
import { stablelm } from "./stablelm.ts";
import { starcoder2 } from "./starcoder2.ts";

export const architectures: readonly CheckpointArchitecture[] = [
  ...[llama, qwen2, qwen2moe, qwen3, qwen3moe, gemma, gemma2, gemma3, gemmaEmbedding],
  ...[granite, graniteMoe, graniteHybridDense, graniteHybrid, olmo2, phi3, stablelm],
  ...[smollm3, mistral3, ministral3, llama4, glm4, glm4moe, gptOss, lfm2, lfm2moe],
  ...[deepseek2, deepseek3, gemma3n, falconH1, nemotron],
  ...[qwen3next, qwen35, qwen35moe, gemma4, gemma4Unified, qwen2vl, qwen3vl, qwen3vlMoe],
  ...[nemotronHMoe, nemotronH, hunyuanDense, hunyuanMoe, arcee, gpt2, gptNeoX, phi2, olmo],
  ...[mamba, mamba2, dots1, minimaxM2, ernie45Moe, glm4MoeLite],
  ...[commandR, cohere2, ernie45, exaone4, olmoe, seedOss, starcoder2, llamaOfImages],
  ...[minicpmLlama, minicpmQwen],
  ...[bert, bertClassifier, jinaBertV2, jinaBertV3, roberta, distilbert, nomicBert, nomicBertMoe, modernBert],
  ...[jinaEmbeddingsV3, euroBert, neoBert, colbert, jinaColbertV2],
];

/** Returns the architecture of a class, if it is known. */
export function architectureFor(name: string, config: Config): CheckpointArchitecture | undefined {
  return architectures.find(({ classes, applies }) => classes.includes(name) && (applies?.(config) ?? true));
}

/** Returns the names of all classes that are known, in alphabetical order. */
export function knownClasses(): readonly string[] {
  return [...new Set(architectures.flatMap(({ classes }) => classes))].sort();
}
