// Gemma 3n, text: four residual streams that are updated in turn (AltUp), and per-layer embeddings.

import type { Config } from "../config.ts";
import { columnRuns, joined, zeros } from "../row-changes.ts";
import type { Change, CheckpointArchitecture } from "./architecture.ts";
import { attention, headNorms } from "./changes.ts";
import { addGemma3Pairs, gemma3Defaults } from "./gemma3.ts";

/** Appends rows of zeros for image and audio tokens, which have no embedding in this table. */
const padded: Change = ({ rows, shape }, config) => {
  const missing = config.count("vocab_size") - rows.rows;
  if (missing <= 0) return { rows, shape };
  return { rows: joined([rows, zeros(missing, rows.columns)]), shape: [shape[0] ?? 1, rows.rows + missing] };
};

/**
 * Returns the feed-forward length of each layer; a list of one element if config.json states one length for all layers. The engines expect
 * one length, so the matrices of shorter layers are padded (repeatedRows, filledRows, filledColumns). The results stay the same: if
 * possible, the gate's rows are repeated, which keeps the mean and the standard deviation of its values; all other padding is zeros.
 */
function lengthsOf(config: Config): readonly number[] {
  const isList = Array.isArray(config.value("intermediate_size"));
  return isList ? config.counts("intermediate_size", config.layers) : [config.count("intermediate_size")];
}

const repeatedRows: Change = ({ rows, shape }, config) => {
  const length = Math.max(...lengthsOf(config));
  if (length <= rows.rows) return { rows, shape };
  const isWhole = length % rows.rows === 0;
  const parts = isWhole
    ? Array.from({ length: length / rows.rows }, () => rows)
    : [rows, zeros(length - rows.rows, rows.columns)];
  return { rows: joined(parts), shape: [rows.columns, length] };
};

const filledRows: Change = ({ rows, shape }, config) => {
  const missing = Math.max(...lengthsOf(config)) - rows.rows;
  if (missing <= 0) return { rows, shape };
  return { rows: joined([rows, zeros(missing, rows.columns)]), shape: [rows.columns, rows.rows + missing] };
};

const filledColumns: Change = ({ rows, shape }, config) => {
  const missing = Math.max(...lengthsOf(config)) - rows.columns;
  if (missing <= 0) return { rows, shape };
  const runs = [
    { first: 0, count: rows.columns },
    { first: null, count: missing },
  ];
  return { rows: columnRuns(rows, runs), shape: [rows.columns + missing, rows.rows] };
};

/**
 * Throws if the feed-forward length of a layer with activation sparsity does not divide the longest length. Such a layer zeroes gate
 * values below a threshold, which depends on their mean and standard deviation. So padding must repeat all gate rows equally often.
 */
function checkLengths(config: Config): void {
  const lengths = lengthsOf(config);
  const longest = Math.max(...lengths);
  const wrong = lengths.slice(0, sparsity.layers).find((length) => longest % length !== 0);
  if (wrong === undefined) return;
  throw config.unsupported(
    "intermediate_size",
    lengths,
    `a whole part of ${longest} in the first ${sparsity.layers} layers, not ${wrong}`,
  );
}

function notesOf(config: Config): string[] {
  const lengths = lengthsOf(config);
  const longest = Math.max(...lengths);
  const shorter = lengths.filter((length) => length < longest).length;
  if (shorter === 0) return [];
  return [
    `${shorter} of ${lengths.length} layers have a shorter feed-forward than ${longest}; llama.cpp takes one length for all layers, so ` +
      `these take the memory and the time of ${longest}: a model or slice with equal lengths saves both`,
  ];
}

/** Activation sparsity: fraction of feed-forward values that are set to 0, and the number of layers at the start that do so. */
const sparsity = { share: 0.95, layers: 10 };

function checkSparsity(config: Config): void {
  const field = "activation_sparsity_pattern";
  const shares = config.value(field) === undefined ? undefined : config.numbers(field, config.layers);
  if (shares?.every((share, layer) => share === (layer < sparsity.layers ? sparsity.share : 0)) ?? true) return;
  throw config.unsupported(field, shares, `${sparsity.share} in the first ${sparsity.layers} layers and 0 in others`);
}

/**
 * The last `shared` layers reuse the keys and values of the two layers before them. Throws unless the earlier one of these two has a
 * sliding window and the later one has none, as the engines expect.
 */
export function checkSharedKeys(config: Config, slides: readonly boolean[], shared: number): void {
  const first = config.layers - shared;
  if (shared <= 0 || (slides[first - 1] === false && slides[first - 2] === true)) return;
  throw config.unsupported("num_kv_shared_layers", shared, "shared keys of a full layer behind a sliding one");
}

/** Number of layers with their own keys and values, which the engines assume for all models. */
const ownKeys = 20;

export const gemma3n: CheckpointArchitecture = {
  name: "gemma3n",
  classes: ["Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"],
  defaults: {
    ...gemma3Defaults,
    hidden_size: 2048,
    intermediate_size: 16_384,
    num_hidden_layers: 35,
    num_key_value_heads: 2,
    max_position_embeddings: 32_768,
    sliding_window: 512,
    altup_num_inputs: 4,
    altup_active_idx: 0,
    hidden_size_per_layer_input: 256,
    laurel_rank: 64,
    num_kv_shared_layers: 15,
    vocab_size: 262_400,
    final_logit_softcapping: 30,
  },
  addPairs(config, pairs) {
    config.mustBe("altup_num_inputs", 4);
    config.mustBe("altup_active_idx", 0);
    config.mustBe("hidden_size_per_layer_input", 256);
    config.mustBe("laurel_rank", 64);
    config.mustBe("num_kv_shared_layers", Math.max(0, config.layers - ownKeys));
    checkSparsity(config);
    checkLengths(config);
    addGemma3Pairs(config, pairs);
    pairs.counts({
      feed_forward_length: Math.max(...lengthsOf(config)),
      "altup.active_idx": 0,
      "altup.num_inputs": 4,
      embedding_length_per_layer_input: 256,
      "attention.shared_kv_layers": config.layers - ownKeys,
    });
    const types = config.layerTexts("layer_types", config.layers);
    if (types) {
      const slides = types.map((type) => type === "sliding_attention");
      checkSharedKeys(config, slides, config.layers - ownKeys);
      pairs.truths("attention.sliding_window_pattern", slides);
    }
  },
  hasSlices: true,
  notes: notesOf,
  tensors: {
    embed_tokens: { to: "token_embd", change: padded },
    embed_tokens_per_layer: { to: "per_layer_token_embd", change: padded },
    norm: "output_norm",
    lm_head: null,
    per_layer_model_projection: "per_layer_model_proj",
    per_layer_projection_norm: "per_layer_proj_norm",
    "altup_projections.{e}": "altup_proj",
    "altup_unembed_projections.{e}": "altup_unembd_proj",
    ...attention,
    ...headNorms,
    "layers.{l}.mlp.gate_proj": { to: "blk.{l}.ffn_gate", change: repeatedRows },
    "layers.{l}.mlp.up_proj": { to: "blk.{l}.ffn_up", change: filledRows },
    "layers.{l}.mlp.down_proj": { to: "blk.{l}.ffn_down", change: filledColumns },
    "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
    "layers.{l}.post_attention_layernorm": "blk.{l}.post_attention_norm",
    "layers.{l}.pre_feedforward_layernorm": "blk.{l}.ffn_norm",
    "layers.{l}.post_feedforward_layernorm": "blk.{l}.post_ffw_norm",
    "layers.{l}.per_layer_input_gate": "blk.{l}.inp_gate",
    "layers.{l}.per_layer_projection": "blk.{l}.proj",
    "layers.{l}.post_per_layer_input_norm": "blk.{l}.post_norm",
    "layers.{l}.altup.correction_coefs": "blk.{l}.altup_correct_coef",
    "layers.{l}.altup.correct_output_scale": { to: "blk.{l}.altup_correct_scale", suffix: ".weight" },
    "layers.{l}.altup.prediction_coefs": "blk.{l}.altup_predict_coef",
    "layers.{l}.altup.modality_router": "blk.{l}.altup_router",
    "layers.{l}.altup.router_norm": "blk.{l}.altup_router_norm",
    "layers.{l}.laurel.linear_left": "blk.{l}.laurel_l",
    "layers.{l}.laurel.linear_right": "blk.{l}.laurel_r",
    "layers.{l}.laurel.post_laurel_norm": "blk.{l}.laurel_post_norm",
  },
};
