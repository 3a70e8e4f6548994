// Llama, Mistral, SmolLM; Mixtral.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import type { CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { feedForward, gateAndUp, llama3Tensors, outerTensors, preNorms, turnedAttention } from "./changes.ts";

/** Adds the key/value pairs of architectures that are built like Llama. */
export function addLlamaPairs(config: Config, pairs: Pairs): void {
  pairs.counts({ vocab_size: config.count("vocab_size"), "rope.dimension_count": config.headLength });
}

/** Default values of Llama's official Python class, for fields that configs of models with image input leave out. */
const llamaDefaults = {
  ...{ hidden_size: 4096, intermediate_size: 11_008, num_hidden_layers: 32, num_attention_heads: 32 },
  ...{ max_position_embeddings: 2048, vocab_size: 32_000 },
};

export const llamaTensors: TensorTable = { ...outerTensors, ...preNorms, ...turnedAttention, ...feedForward };

/** Arcee (AFM): Llama with squared ReLU instead of a gate. */
export const arcee: CheckpointArchitecture = {
  name: "arcee",
  classes: ["ArceeForCausalLM"],
  defaults: { hidden_act: "relu2", rms_norm_eps: 1e-5 },
  addPairs(config, pairs) {
    config.mustBe("hidden_act", "relu2");
    addLlamaPairs(config, pairs);
  },
  tensors: llamaTensors,
  addTensors: llama3Tensors,
};

export const llama: CheckpointArchitecture = {
  name: "llama",
  classes: [
    "LlamaForCausalLM",
    "LLaMAForCausalLM",
    "LlamaModel",
    "MistralForCausalLM",
    "MistralModel",
    "MixtralForCausalLM",
  ],
  defaults: { hidden_act: "silu", rms_norm_eps: 1e-6 },
  addPairs(config, pairs) {
    config.mustBe("hidden_act", "silu");
    addLlamaPairs(config, pairs);
  },
  tensors: {
    ...llamaTensors,
    "layers.{l}.block_sparse_moe.gate": "blk.{l}.ffn_gate_inp",
    "layers.{l}.block_sparse_moe.experts.{e}.w1": "blk.{l}.ffn_gate_exps",
    "layers.{l}.block_sparse_moe.experts.{e}.w2": "blk.{l}.ffn_down_exps",
    "layers.{l}.block_sparse_moe.experts.{e}.w3": "blk.{l}.ffn_up_exps",
    "layers.{l}.mlp.gate": "blk.{l}.ffn_gate_inp",
    "layers.{l}.mlp.experts.gate_up_proj": gateAndUp("blk.{l}.ffn_gate_exps", "blk.{l}.ffn_up_exps"),
    "layers.{l}.mlp.experts.down_proj": "blk.{l}.ffn_down_exps",
  },
  addTensors: llama3Tensors,
  pools: true,
};

/** Llama or Mistral as the text model of LLaVA, Pixtral, Idefics 3, SmolVLM and InternVL. */
export const llamaOfImages: CheckpointArchitecture = {
  ...llama,
  classes: [
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "Idefics3ForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
    "InternVLForConditionalGeneration",
  ],
  applies: (config) => config.value("model_type") === "llama" || config.value("model_type") === "mistral",
  computedDefaults: (config) => (config.value("model_type") === "llama" ? llamaDefaults : {}),
};
