// Nemotron (Minitron): layer norms store the factor minus one; squared ReLU; RoPE on a part of each head.
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { attention, plusOne } from "./changes.ts";

/** Returns the table entries of a layer norm: 1 is added to its weight, but not to its bias. */
function norm(from: string, to: string): TensorTable {
  return { [`${from}.weight`]: { to, change: plusOne }, [`${from}.bias`]: to };
}

export const nemotron: CheckpointArchitecture = {
  name: "nemotron",
  classes: ["NemotronForCausalLM"],
  defaults: { norm_eps: 1e-5, partial_rotary_factor: 0.5, hidden_act: "relu2" },
  addPairs(config, pairs) {
    config.mustBe("hidden_act", "relu2");
    const { main } = ropeSettings(config);
    const share = Math.trunc(main.numberOr(0.5, "partial_rotary_factor") * config.width);
    pairs.counts({ vocab_size: config.count("vocab_size"), "rope.dimension_count": Math.floor(share / config.heads) });
    pairs.floats({ "attention.layer_norm_epsilon": config.number("norm_eps", "layer_norm_eps") });
    pairs.remove("attention.layer_norm_rms_epsilon");
    if (main.value("factor") === undefined) pairs.text("rope.scaling.type", "none");
  },
  tensors: {
    embed_tokens: "token_embd",
    lm_head: "output",
    ...norm("norm", "output_norm"),
    ...norm("layers.{l}.input_layernorm", "blk.{l}.attn_norm"),
    ...norm("layers.{l}.post_attention_layernorm", "blk.{l}.ffn_norm"),
    ...attention,
    "layers.{l}.mlp.up_proj": "blk.{l}.ffn_up",
    "layers.{l}.mlp.down_proj": "blk.{l}.ffn_down",
  },
};
