// ModernBERT: an encoder with bidirectional sliding windows; gate and up are one matrix.
import type { CheckpointArchitecture } from "./architecture.ts";
import { addEncoderPairs, isClassifier } from "./bert.ts";

export const modernBert: CheckpointArchitecture = {
  name: "modern-bert",
  classes: ["ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"],
  defaults: {
    layer_norm_eps: 1e-5,
    norm_eps: 1e-5,
    global_rope_theta: 160_000,
    local_rope_theta: 10_000,
    local_attention: 128,
    global_attn_every_n_layers: 3,
    hidden_activation: "gelu",
    classifier_pooling: "cls",
  },
  addPairs(config, pairs) {
    // The engines pool classifiers by the mean of all tokens.
    if (isClassifier(config)) config.mustBe("classifier_pooling", "mean");
    addEncoderPairs(config, pairs);
    pairs.floats({ "attention.layer_norm_epsilon": config.number("norm_eps", "layer_norm_eps") });
    pairs.remove("attention.layer_norm_rms_epsilon");
    pairs.counts({
      vocab_size: config.count("vocab_size"),
      "attention.sliding_window": config.count("local_attention"),
      "attention.sliding_window_pattern": config.count("global_attn_every_n_layers"),
    });
    const types = config.layerTexts("layer_types", config.layers);
    if (types) {
      const slides = types.map((type) => type === "sliding_attention");
      pairs.truths("attention.sliding_window_pattern", slides);
    }
    pairs.text("rope.scaling.type", "none");
    pairs.text("hidden_activation", config.text("hidden_activation") ?? "gelu");
  },
  tensors: {
    "embeddings.tok_embeddings": "token_embd",
    "embeddings.norm": "token_embd_norm",
    final_norm: "output_norm",
    "layers.{l}.attn_norm": "blk.{l}.attn_norm",
    "layers.{l}.attn.Wqkv": "blk.{l}.attn_qkv",
    "layers.{l}.attn.Wo": "blk.{l}.attn_output",
    "layers.{l}.mlp_norm": "blk.{l}.ffn_norm",
    "layers.{l}.mlp.Wi": "blk.{l}.ffn_up",
    "layers.{l}.mlp.Wo": "blk.{l}.ffn_down",
    "head.dense": "cls",
    "head.norm": "cls.norm",
    classifier: "cls.output",
    decoder: null,
  },
  pools: true,
};
