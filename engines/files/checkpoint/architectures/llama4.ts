// Llama 4, text: chunked attention, and a shared expert in addition to the chosen ones.
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, gateAndUp, llama3Tensors, outerTensors, preNorms, turned } from "./changes.ts";
import { addLlamaPairs } from "./llama.ts";

export const llama4: CheckpointArchitecture = {
  name: "llama4",
  classes: ["Llama4ForCausalLM", "Llama4ForConditionalGeneration"],
  defaults: {
    rms_norm_eps: 1e-5,
    hidden_size: 5120,
    intermediate_size: 8192,
    intermediate_size_mlp: 16_384,
    num_hidden_layers: 48,
    num_attention_heads: 40,
    num_key_value_heads: 8,
    head_dim: 128,
    max_position_embeddings: 131_072,
    vocab_size: 202_048,
    num_local_experts: 16,
    num_experts_per_tok: 1,
    rope_theta: 500_000,
    interleave_moe_layer_step: 1,
    attention_chunk_size: 8192,
    floor_scale: 8192,
    attn_scale: 0.1,
    use_qk_norm: true,
  },
  addPairs(config, pairs) {
    // The engines use these numbers for all models.
    config.mustBe("attention_chunk_size", 8192);
    config.mustBe("floor_scale", 8192);
    config.mustBe("attn_scale", 0.1);
    config.mustBe("use_qk_norm", config.countOr(0, "num_local_experts") !== 128);
    addLlamaPairs(config, pairs);
    pairs.counts({
      // intermediate_size is the length of an expert, not of the feed-forward.
      feed_forward_length: config.count("intermediate_size_mlp"),
      expert_feed_forward_length: config.count("intermediate_size"),
      interleave_moe_layer_step: config.count("interleave_moe_layer_step"),
    });
  },
  tensors: {
    ...outerTensors,
    ...preNorms,
    ...attention,
    "layers.{l}.feed_forward.gate_proj": "blk.{l}.ffn_gate",
    "layers.{l}.feed_forward.up_proj": "blk.{l}.ffn_up",
    "layers.{l}.feed_forward.down_proj": "blk.{l}.ffn_down",
    "layers.{l}.feed_forward.router": "blk.{l}.ffn_gate_inp",
    "layers.{l}.feed_forward.experts.gate_up_proj": gateAndUp("blk.{l}.ffn_gate_exps", "blk.{l}.ffn_up_exps", turned),
    "layers.{l}.feed_forward.experts.down_proj": { to: "blk.{l}.ffn_down_exps", change: turned },
    "layers.{l}.feed_forward.shared_expert.gate_proj": "blk.{l}.ffn_gate_shexp",
    "layers.{l}.feed_forward.shared_expert.up_proj": "blk.{l}.ffn_up_shexp",
    "layers.{l}.feed_forward.shared_expert.down_proj": "blk.{l}.ffn_down_shexp",
  },
  addTensors: llama3Tensors,
};
