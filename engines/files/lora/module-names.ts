// Module names: maps a model's modules to the matrices of GGUF files, and determines whether GGUF files reorder the
// rows of a matrix. Only listed model families are supported: their files keep all matrices unchanged, or interleave
// the rows of queries and keys. PEFT adapters of other families are rejected, because a wrong row order would give no
// error, only meaningless output.
import { quote } from "../gguf/invalid-file.ts";
import type { TensorTable } from "../gguf/tensors.ts";
import { invalidAdapter } from "./adapter-problems.ts";

export interface ModuleMatrix {
  /** Name of the matrix in the model's file. */
  readonly name: string;
  /** Number of heads whose rows GGUF files interleave; 0 = none. See LoraPair.turnedHeads. */
  readonly turnedHeads: number;
}

/**
 * Model families, by `general.architecture`, whose files interleave the rows of the two halves of each query and key
 * head.
 */
const turnedFamilies = ["llama", "arcee", "granite", "granitemoe", "minicpm", "mistral3", "olmo", "smollm3"];
/** Model families whose files keep all matrices unchanged. */
const plainFamilies = [
  ...["qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "phi3", "stablelm", "starcoder2"],
  ...["cohere2", "command-r", "ernie4_5", "exaone4", "olmo2", "olmoe", "seed_oss"],
];

const inBlock: ReadonlyMap<string, string> = new Map([
  ["self_attn.q_proj", "attn_q"],
  ["self_attn.k_proj", "attn_k"],
  ["self_attn.v_proj", "attn_v"],
  ["self_attn.o_proj", "attn_output"],
  ["self_attn.qkv_proj", "attn_qkv"],
  ["mlp.gate_proj", "ffn_gate"],
  ["mlp.up_proj", "ffn_up"],
  ["mlp.down_proj", "ffn_down"],
  // The gate and up matrices are one matrix with the gate rows first, as in the GGUF file.
  ["mlp.gate_up_proj", "ffn_up"],
  ["mlp.c_fc", "ffn_up"],
  ["mlp.c_proj", "ffn_down"],
  ["mlp.shared_expert.gate_proj", "ffn_gate_shexp"],
  ["mlp.shared_expert.up_proj", "ffn_up_shexp"],
  ["mlp.shared_expert.down_proj", "ffn_down_shexp"],
]);

/** Matches `model.layers.7.self_attn.q_proj`, also with the prefixes of multimodal models. */
const blockModule = /^(?:(?:language_model\.model|model\.language_model|model)\.)?layers\.(0|[1-9]\d{0,5})\.(.+)$/;
const outputModule = /^(?:language_model\.)?lm_head$/;

/** Returns the model's matrix for a module that PEFT adapted. Throws `invalid_lora_adapter`. */
export function matrixOf(module: string, { tensors, fields }: TensorTable): ModuleMatrix {
  const architecture = String(fields.get("general.architecture"));
  const isTurned = turnedFamilies.includes(architecture);
  if (!isTurned && !plainFamilies.includes(architecture)) {
    throw invalidAdapter(
      `PEFT adapters are not supported for models of the architecture ${quote(architecture)}; convert it to ` +
        "a GGUF adapter",
    );
  }
  const [, layer, inside = ""] = blockModule.exec(module) ?? [];
  const part = inBlock.get(inside);
  const name = outputModule.test(module) ? "output.weight" : part && `blk.${layer}.${part}.weight`;
  if (!name) throw invalidAdapter(`its module ${quote(module)} is not a matrix that adapters can change`);
  if (!tensors.has(name)) {
    throw invalidAdapter(`its module ${quote(module)} would be ${name}, which the model does not have`);
  }
  if (!isTurned || (part !== "attn_q" && part !== "attn_k")) return { name, turnedHeads: 0 };
  return { name, turnedHeads: headsOf(part === "attn_k", Number(layer), architecture, fields) };
}

function headsOf(ofKeys: boolean, layer: number, architecture: string, fields: TensorTable["fields"]): number {
  const heads = fields.get(`${architecture}.attention.head_count`);
  const found = ofKeys ? (fields.get(`${architecture}.attention.head_count_kv`) ?? heads) : heads;
  const count = Array.isArray(found) ? found[layer] : found;
  if (typeof count === "number" && Number.isSafeInteger(count) && count > 0) return count;
  throw invalidAdapter(`the model does not say how many heads its layer ${layer} has`);
}
